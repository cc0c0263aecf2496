/* Sorting records by keys of 64 bits, byte by byte from the lowest on; bytes that all keys share are passed over. It is
 * stable, and takes as long for keys in any order. Keys of all types of numbers, whose order is that of the numbers. */
#ifndef TINYCOMP_KERNELS_SELECT_RADIX_H
#define TINYCOMP_KERNELS_SELECT_RADIX_H

#include "vocabulary.h"

#include "../common/number.h"

/* A key, and where its number is. */
typedef struct radix_record {
  uint64_t key;
  int64_t place;
} radix_record;

/* Fewer records are inserted one by one. */
enum { RADIX_FEW = 64 };

static void radix_insert(radix_record *records, int64_t count) {
  for (int64_t i = 1; i < count; i++) {
    const radix_record moved = records[i];
    int64_t at = i;
    for (; at > 0 && records[at - 1].key > moved.key; at--) {
      records[at] = records[at - 1];
    }
    records[at] = moved;
  }
}

/* Sorts records with the help of as many others; the sorted ones are returned, the rest may hold anything. */
static __attribute__((noinline)) radix_record *radix_sort(radix_record *records, radix_record *other, int64_t count) {
  if (count <= RADIX_FEW) {
    radix_insert(records, count);
    return records;
  }
  uint64_t differ = 0;
  for (int64_t i = 1; i < count; i++) {
    differ |= records[i].key ^ records[0].key;
  }
  for (int shift = 0; shift < 64; shift += 8) {
    if (!(differ >> shift & 255)) {
      continue;
    }
    int64_t starts[256] = {0}, sum = 0;
    for (int64_t i = 0; i < count; i++) {
      starts[records[i].key >> shift & 255]++;
    }
    for (int i = 0; i < 256; i++) {
      const int64_t here = starts[i];
      starts[i] = sum;
      sum += here;
    }
    for (int64_t i = 0; i < count; i++) {
      other[starts[records[i].key >> shift & 255]++] = records[i];
    }
    radix_record *sorted = other;
    other = records;
    records = sorted;
  }
  return records;
}

/* radix_key_*: both zeros have one key, and NaN has the greatest that its type has. */
#define RADIX_WHOLE(kind, type, least) \
  TC_INLINE uint64_t radix_key_##kind(type x) { return (uint64_t)x - (uint64_t)(least); }
RADIX_WHOLE(U8, uint8_t, 0)
RADIX_WHOLE(U16, uint16_t, 0)
RADIX_WHOLE(U32, uint32_t, 0)
RADIX_WHOLE(U64, uint64_t, 0)
RADIX_WHOLE(I8, int8_t, INT8_MIN)
RADIX_WHOLE(I16, int16_t, INT16_MIN)
RADIX_WHOLE(I32, int32_t, INT32_MIN)
RADIX_WHOLE(I64, int64_t, INT64_MIN)
#undef RADIX_WHOLE
#define RADIX_REAL(kind, type, bits_type)                                      \
  TC_INLINE uint64_t radix_key_##kind(type x) {                                \
    const type number = x + 0;                                                 \
    bits_type bits;                                                            \
    memcpy(&bits, &number, sizeof(bits));                                      \
    const bits_type sign = (bits_type)1 << (8 * sizeof(bits) - 1);             \
    return x != x ? UINT64_MAX : bits & sign ? (bits_type)~bits : bits | sign; \
  }
RADIX_REAL(F32, float, uint32_t)
RADIX_REAL(F64, double, uint64_t)
#undef RADIX_REAL

#endif
