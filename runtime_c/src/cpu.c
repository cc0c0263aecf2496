/* What the processor of this machine has: features, and caches. */
#include "cpu.h"

#include "platform.h"
#include "tinycomp.h"

bool tc_cpu_has_scalar(void) { return true; }

bool tc_cpu_has_helium(void) {
#ifdef TC_EMULATES_HELIUM
  return true;
#else
  return false;
#endif
}

#if defined(__aarch64__)
bool tc_cpu_has_neon(void) { return true; }

bool tc_cpu_has_dotprod(void) { return tc_stated_dotprod(); }
#else
bool tc_cpu_has_neon(void) { return false; }
bool tc_cpu_has_dotprod(void) { return false; }
#endif

#if defined(__x86_64__)
/* Every processor with AVX2 converts halves, too. */
bool tc_cpu_has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

/* Older compilers do not know the feature by name, nor their assemblers the instruction. */
bool tc_cpu_has_avxvnni(void) {
#if defined(__GNUC__) && __GNUC__ >= 11
  return tc_cpu_has_avx2() && __builtin_cpu_supports("avxvnni");
#else
  return false;
#endif
}

bool tc_cpu_has_avx512(void) {
  return tc_cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool tc_cpu_has_avx512vnni(void) { return tc_cpu_has_avx512() && __builtin_cpu_supports("avx512vnni"); }
bool tc_cpu_has_avx512bf16(void) { return tc_cpu_has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#endif

int64_t tc_cache_bytes(int32_t level) {
  static const int64_t common[] = {32 << 10, 1 << 20, 32 << 20};
  const int64_t stated = tc_stated_cache_bytes(level);
  return stated > 0 ? stated : level >= 1 && level <= 3 ? common[level - 1] : 0;
}

const char *tc_cpu_feature(int32_t index) {
#if defined(__x86_64__)
#define TC_FEATURE(name) {name, __builtin_cpu_supports(name) != 0}
  const struct {
    const char *name;
    bool present;
  } features[] = {TC_FEATURE("avx2"),     TC_FEATURE("fma"),      TC_FEATURE("avx512f"),    TC_FEATURE("avx512bw"),
                  TC_FEATURE("avx512dq"), TC_FEATURE("avx512vl"), TC_FEATURE("avx512vnni"), TC_FEATURE("avx512bf16")};
#undef TC_FEATURE
  for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++) {
    if (features[i].present && index-- == 0) {
      return features[i].name;
    }
  }
  return NULL;
#elif defined(__aarch64__)
  return index == 0 ? "neon" : NULL;
#else
  (void)index;
  return NULL;
#endif
}
