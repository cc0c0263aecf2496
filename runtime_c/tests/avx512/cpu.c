/* The features of a processor with AVX-512, less the one that the variable TINYCOMP_ABSENT_FEATURE names. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool supports(const char *feature) {
  const char *absent = getenv("TINYCOMP_ABSENT_FEATURE");
  return !absent || strcmp(feature, absent) != 0;
}

#define __builtin_cpu_supports(feature) supports(feature)
#include "../../src/cpu.c"
