/* Programs of records, for whoever reads files of them. */
#ifndef TINYCOMP_READING_H
#define TINYCOMP_READING_H

#include "program.h"

/* The arrays that a unit names by number. */
typedef struct tc_arrays {
  const tc_array *items;
  int64_t count;
  bool passing; /* whether they go away after the reading: what a run reads is copied */
} tc_arrays;

/* Reads the programs of a unit, whose first record has been read, and returns the last of them, to which the others
 * belong; NULL with an error. */
tc_program *tc_unit_read(tc_reader *reader, const tc_field *unit, const tc_arrays *arrays, const tc_making *making);

/* The name of a type in the table of names, and the bytes of an element; NULL if it is not known. */
const char *tc_dtype_find(const char *name, int32_t *element);

#endif
