/* Which instruction sets and processor features this machine has. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "isa.h"
#include "program.h"

bool tc_cpu_has_scalar(void) { return true; }

#if defined(__aarch64__)
bool tc_cpu_has_neon(void) { return true; }
#elif defined(__x86_64__)
bool tc_cpu_has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool tc_cpu_has_avx512(void) {
  return tc_cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool tc_cpu_has_avx512vnni(void) { return tc_cpu_has_avx512() && __builtin_cpu_supports("avx512vnni"); }
#endif

#define TC_ISA(name)        \
  {#name,                   \
   tc_cpu_has_##name,       \
   tc_kernels__##name,      \
   &tc_shape__##name,       \
   tc_multiply_add__##name, \
   tc_multiply_add_int8__##name},
static const tc_isa isas[] = {TC_ISA_LIST};
#undef TC_ISA

enum { ISA_COUNT = sizeof(isas) / sizeof(isas[0]) };

static const tc_isa *isa_at(int32_t index) {
  for (int i = 0; i < ISA_COUNT; i++) {
    if (isas[i].runs_here() && index-- == 0) {
      return &isas[i];
    }
  }
  return NULL;
}

const char *tc_isa_name(int32_t index) {
  const tc_isa *isa = isa_at(index);
  return isa ? isa->name : NULL;
}

const tc_isa *tc_isa_find(const char *name) {
  if (!name || !*name) {
    name = getenv("TINYCOMP_ISA");
  }
  const tc_isa *best = NULL;
  const bool any = !name || !*name;
  for (int32_t i = 0; isa_at(i); i++) {
    if (any || strcmp(isa_at(i)->name, name) == 0) {
      best = isa_at(i);
    }
  }
  return best;
}

const char *tc_isa_default(void) {
  const tc_isa *isa = tc_isa_find(NULL);
  return isa ? isa->name : NULL;
}

int32_t tc_isa_describe(const char *name, tc_isa_shape *shape) {
  const tc_isa *isa = tc_isa_find(name);
  if (isa) {
    *shape = *isa->shape;
  }
  return isa != NULL;
}

int64_t tc_cache_bytes(int32_t level) {
  static const int64_t common[] = {32 << 10, 1 << 20, 32 << 20};
  long stated = 0;
#ifdef _SC_LEVEL1_DCACHE_SIZE
  const int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
  stated = level >= 1 && level <= 3 ? sysconf(names[level - 1]) : 0;
#endif
  return stated > 0 ? stated : level >= 1 && level <= 3 ? common[level - 1] : 0;
}

const tc_isa *tc_isa_demand(const char *name, tc_error *error) {
  const tc_isa *found = tc_isa_find(name);
  if (!found) {
    const char *wanted = name && *name ? name : getenv("TINYCOMP_ISA");
    tc_error_set(error, TC_UNSUPPORTED, "this machine cannot run the instruction set \"%s\"", wanted ? wanted : "");
  }
  return found;
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
