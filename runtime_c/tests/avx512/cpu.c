/* The features of a processor with AVX-512, less those that the variable TINYCOMP_ABSENT_FEATURES names. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool supports(const char *feature) {
  const char *absent = getenv("TINYCOMP_ABSENT_FEATURES");
  return !absent || !strstr(absent, feature);
}

#define __builtin_cpu_supports(feature) supports(feature)
#include "../../src/cpu.c"
