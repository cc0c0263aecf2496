/* The list of kernels, and how their prepare hooks refuse a call. */
#include "nd.h"

#include <stdarg.h>
#include <stdio.h>

const tc_kernel_info tc_kernel_infos[TC_KERNEL_COUNT] = {
#define TC_KERNEL(name, signature, packing) {#name, signature, (int64_t)sizeof(tc_##name##_params)},
#include "../kernels/kernels.def"
#undef TC_KERNEL
};

int32_t tc_kernel_count(void) { return TC_KERNEL_COUNT; }

const char *tc_kernel_name(int32_t kernel) {
  return kernel >= 0 && kernel < TC_KERNEL_COUNT ? tc_kernel_infos[kernel].name : NULL;
}

const char *tc_kernel_signature(int32_t kernel) {
  return kernel >= 0 && kernel < TC_KERNEL_COUNT ? tc_kernel_infos[kernel].signature : NULL;
}

void tc_refuse(tc_prepare *prepare, const char *format, ...) {
  if (tc_refused(prepare)) {
    return;
  }
  va_list args;
  va_start(args, format);
  prepare->error->code = TC_INVALID;
  vsnprintf(prepare->error->message, sizeof(prepare->error->message), format, args);
  va_end(args);
}
