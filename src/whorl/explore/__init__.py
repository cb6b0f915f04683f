"""A local web page with charts of a model's positions: ``whorl explore``.

    state        the config of a request: a preset, a pasted one, or that of the command line
    choices      the values of the sliders: a scaling, a factor, a base
    curves       the numbers of the charts, for one layer group and several scalings
    report       the results of inspect and doctor, and the config to copy
    rewrite      the config with the values of the sliders written into it
    export       one page in one file, of a model with steps, or of two models
    heat         the heat map of scores
    picture      wavelengths as a picture, without a browser
    compare      biases, report card and lab results, for the page of encodings
    api          functions from JSON to JSON, which check requests and call the above
    connections  a time limit for requests, and a limit for their number
    guard        refuses requests that do not come from the page itself
    server       addresses and files; needs starlette and uvicorn, the ``web`` extra

The pages in static/ are plain JavaScript and draw SVG; all mathematics is in Python.
"""
