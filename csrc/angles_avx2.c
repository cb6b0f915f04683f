/* The functions of angles.h once more, compiled for AVX2: four angles at a time. */
#define WHORL_ANGLES(name) whorl_angles_avx2_##name
#include "angles.h"
