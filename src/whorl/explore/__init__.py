"""A local page that puts a model's positions before your eyes: ``whorl explore``.

    state        what a request is about: a preset, a pasted config, the one of the command line
    choices      what the sliders ask for: a scaling, a factor, a base
    curves       the numbers of the charts, for one group of layers and several scalings
    report       what inspect and doctor say, and the config to copy
    rewrite      the config that asks for what the sliders show
    compare      biases, report card and lab results, for the second page
    api          JSON in, JSON out: checks requests and calls the above
    connections  a time limit for requests, and room for many at once
    guard        refuses what does not come from the page itself
    server       addresses and files; needs starlette and uvicorn, the ``web`` extra

The pages in static/ are written by hand and draw SVG; all mathematics is here.
"""
