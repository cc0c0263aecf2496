/* gather: slices of data[outer, axis, inner bytes] by indices that count from the end if they are negative. A unit is
 * one slice; a piece of many small ones would not be faster, as a thread takes its units in one go. */

enum { GATHER_Y, GATHER_DATA, GATHER_INDICES };

static void TC_NAME(tc_gather_prepare)(tc_prepare *prepare) {
  const tc_gather_params *p = prepare->params;
  TC_REQUIRE(prepare, p->index_size == 4 || p->index_size == 8, "indices of %lld bytes are not supported",
             (long long)p->index_size);
  TC_REQUIRE(prepare, p->element_size == 1 || p->element_size == 2 || p->element_size == 4 || p->element_size == 8,
             "elements of %lld bytes cannot be gathered", (long long)p->element_size);
  tc_touch(prepare, GATHER_Y, TC_PRODUCT(prepare, p->outer, p->count, p->inner), (int)p->element_size);
  tc_touch(prepare, GATHER_DATA, TC_PRODUCT(prepare, p->outer, p->axis, p->inner), (int)p->element_size);
  tc_touch(prepare, GATHER_INDICES, p->count, (int)p->index_size);
  prepare->units = TC_PRODUCT(prepare, p->outer, p->count);
  prepare->cost = (double)prepare->units * (8.0 + (double)p->inner * (double)p->element_size);
}

/* The position that an index means, or -1 if it is out of range. */
TC_INLINE int64_t gather_index(const void *indices, int64_t size, int64_t i, int64_t axis) {
  const int64_t index = size == 4 ? ((const int32_t *)indices)[i] : ((const int64_t *)indices)[i];
  const int64_t position = index < 0 ? index + axis : index;
  return position < 0 || position >= axis ? -1 : position;
}

/* Inlined with literal sizes for slices of one element. */
TC_INLINE void gather_slices(const tc_call *call, const int64_t bytes, int64_t begin, int64_t end) {
  const tc_gather_params *p = call->params;
  char *y = call->operands[GATHER_Y];
  const char *data = call->operands[GATHER_DATA];
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t outer = unit / p->count;
    const int64_t index = gather_index(call->operands[GATHER_INDICES], p->index_size, unit % p->count, p->axis);
    if (index < 0) {
      tc_fail(call, "an index is out of range");
      return;
    }
    memcpy(y + unit * bytes, data + (outer * p->axis + index) * bytes, (size_t)bytes);
  }
}

static void TC_NAME(tc_gather)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_gather_params *p = call->params;
  const int64_t bytes = p->inner * p->element_size;
  if (bytes == 4) {
    gather_slices(call, 4, begin, end);
  } else if (bytes == 8) {
    gather_slices(call, 8, begin, end);
  } else {
    gather_slices(call, bytes, begin, end);
  }
}
