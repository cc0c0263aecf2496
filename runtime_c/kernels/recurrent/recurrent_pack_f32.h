/* recurrent_pack_f32: the matrices of recurrent_f32 as that reads them, where a run computes them. A unit is one
 * direction. */
#ifndef TINYCOMP_KERNELS_RECURRENT_RECURRENT_PACK_F32_H
#define TINYCOMP_KERNELS_RECURRENT_RECURRENT_PACK_F32_H

#include "vocabulary.h"

#include "recurrent_f32.h"

enum { RECURRENT_PACK_Y, RECURRENT_PACK_R };

static tc_recurrent_f32_params recurrent_pack_cell(const tc_recurrent_pack_f32_params *p) {
  return (tc_recurrent_f32_params){.cell = p->cell, .hidden = p->hidden, .directions = p->directions};
}

static void TC_NAME(tc_recurrent_pack_f32_prepare)(tc_prepare *prepare) {
  const tc_recurrent_pack_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->cell >= 0 && p->cell < RECURRENT_CELL_KINDS, "there is no cell %lld", (long long)p->cell);
  TC_REQUIRE(prepare, p->directions == 1 || p->directions == 2, "there are 1 or 2 directions, not %lld",
             (long long)p->directions);
  TC_PRODUCT(prepare, tc_plus(p->hidden, TC_LANES), sizeof(float));
  if (tc_refused(prepare)) {
    return;
  }
  const tc_recurrent_f32_params cell = recurrent_pack_cell(p);
  tc_touch(prepare, RECURRENT_PACK_Y, recurrent_packed(prepare, &cell), sizeof(float));
  tc_touch(prepare, RECURRENT_PACK_R,
           TC_PRODUCT(prepare, p->directions, recurrent_kinds[p->cell].gates, p->hidden, p->hidden), sizeof(float));
  prepare->units = p->directions;
  prepare->cost = (double)recurrent_packed(prepare, &cell);
}

static void TC_NAME(tc_recurrent_pack_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_recurrent_f32_params cell = recurrent_pack_cell(call->params);
  recurrent_pack(&cell, call->operands[RECURRENT_PACK_R], begin, end, call->operands[RECURRENT_PACK_Y]);
}

#endif
