/* For kernels that stand alone and whose sizes only a run knows: the part of them that checks calls says how they are
 * made. TC_SIZED is defined. */
#ifndef TINYCOMP_SIZED_H
#define TINYCOMP_SIZED_H

#include <stdarg.h>
#include <string.h>

#include "nd.h"
#include "window.h"

static void tc_refuse(tc_prepare *prepare, const char *format, ...) {
  (void)format;
  prepare->error->code = TC_INVALID;
}
#include "prepare.c"
#include "window.c"
#include "nd.c"

/* What a kernel consists of. */
typedef struct tc_sized {
  tc_prepare_fn prepare;
  tc_pack_fn pack; /* NULL where the state is that of all sizes, or there is none */
  tc_run_fn run;
  int32_t operands;
} tc_sized;

/* Makes a call at the sizes of its parameters. What the kernel says that it needs must be there: so many bytes from
 * each operand on, and room for scratch and for a state that is packed anew. Returns whether it is. */
static int tc_run_sized(const tc_sized *kernel, tc_call *call, const tc_operand *spaces, const int64_t *bytes,
                        void *state, int64_t state_room, int64_t scratch_room) {
  tc_error error = {.code = TC_OK};
  tc_prepare prepare = {.params = call->params, .operands = spaces, .l2_bytes = call->l2_bytes, .error = &error};
  for (int32_t i = 0; i < TC_MAX_OPERANDS; i++) {
    prepare.extents[i] = TC_MAX_BYTES + 1;
    const bool is_constant = i < kernel->operands && spaces[i].space == TC_CONSTANT;
    prepare.constants[i] = is_constant ? call->operands[i] : NULL;
    prepare.constant_bytes[i] = is_constant && call->operands[i] ? bytes[i] : 0;
  }
  kernel->prepare(&prepare);
  bool fits = !error.code && prepare.scratch_bytes <= scratch_room;
  for (int32_t i = 0; i < kernel->operands; i++) {
    fits = fits && (!call->operands[i] || prepare.extents[i] <= bytes[i]);
  }
  if (!fits) {
    return 0;
  }
  if (kernel->pack) {
    if (prepare.state_bytes > state_room) {
      return 0;
    }
    memset(state, 0, (size_t)prepare.state_bytes);
    kernel->pack(&prepare, state);
    call->state = state;
  }
  if (prepare.units) {
    kernel->run(call, 0, prepare.units);
  }
  return 1;
}

#endif
