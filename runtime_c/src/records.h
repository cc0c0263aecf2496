/* Records: what programs and modules are described by, in memory and in files. */
#ifndef TINYCOMP_RECORDS_H
#define TINYCOMP_RECORDS_H

#include <stdbool.h>

#include "base.h"
#include "building.h"

#define TC_RECORD(name, fields) TC_RECORD_##name,
enum tc_record_kind {
#include "records.def"
  TC_RECORD_KINDS
};
#undef TC_RECORD

enum { TC_MOST_FIELDS = 9 };

/* Memory that is given back as a whole. */
typedef struct tc_store {
  struct tc_chunk *chunks;
} tc_store;

/* Zeroed memory for so many items; NULL if there is none. */
void *tc_store_take(tc_store *store, int64_t count, size_t size);
void tc_store_free(tc_store *store);

/* What is left of a description. After the first failure everything reads as nothing, and the error says why. */
typedef struct tc_reader {
  const unsigned char *at, *end;
  tc_store items;     /* lists of the records that have been read since the last tc_record_forget */
  const char *record; /* name of the record at hand */
  tc_error *error;
} tc_reader;

/* A field of a record: a number; how many bytes, or items of a list, there are; a text, bytes or an array of items. */
typedef struct tc_field {
  int64_t number;
  union {
    const void *data;
    const char *text;
    const char *const *texts;
    const int64_t *numbers;
    const tc_operand *operands;
    const tc_extent *extents;
  };
} tc_field;

/* Reads the next record and returns its kind; TC_RECORD_KINDS at the end and after a failure. */
int32_t tc_record_read(tc_reader *reader, tc_field fields[TC_MOST_FIELDS]);
/* Gives back the lists of the records read so far. */
void tc_record_forget(tc_reader *reader);

static inline bool tc_record_failed(const tc_reader *reader) { return reader->error->code != TC_OK; }
/* Says that the record at hand is damaged, unless something failed before; returns the code of the error. */
int32_t tc_record_fail(tc_reader *reader, const char *what);
int32_t tc_record_no_memory(tc_reader *reader);

/* A copy of an array of items, or of a text; NULL with an error. */
void *tc_store_copy(tc_store *store, const void *items, int64_t count, size_t size, tc_reader *reader);
const char *tc_store_text(tc_store *store, const char *text, tc_reader *reader);

#endif
