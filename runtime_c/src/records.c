/* Reading records, by the list of what they consist of. Every count is held against the bytes that are left. */
#include "records.h"

#include <string.h>

static const char *const records[] = {
#define TC_RECORD(name, fields) fields,
#include "records.def"
#undef TC_RECORD
};

int32_t tc_record_count(void) { return TC_RECORD_KINDS; }

const char *tc_record_fields(int32_t kind) { return kind >= 0 && kind < TC_RECORD_KINDS ? records[kind] : NULL; }

/* ---- memory ---- */

typedef struct tc_chunk {
  struct tc_chunk *next;
  int64_t used, room;
} tc_chunk;

void *tc_store_take(tc_store *store, int64_t count, size_t size) {
  enum { ROOM = 1 << 12 };
  const int64_t bytes = tc_round_up(count * (int64_t)size + 1, 16);
  tc_chunk *chunk = store->chunks;
  if (!chunk || chunk->room - chunk->used < bytes) {
    const int64_t room = tc_max(ROOM, bytes);
    chunk = tc_allocate(TC_ALIGNMENT + room);
    if (!chunk) {
      return NULL;
    }
    *chunk = (tc_chunk){store->chunks, 0, room};
    store->chunks = chunk;
  }
  chunk->used += bytes;
  return (char *)chunk + TC_ALIGNMENT + chunk->used - bytes;
}

void tc_store_free(tc_store *store) {
  while (store->chunks) {
    tc_chunk *next = store->chunks->next;
    tc_free(store->chunks);
    store->chunks = next;
  }
}

void tc_record_forget(tc_reader *reader) {
  tc_chunk *last = reader->items.chunks;
  if (last && last->next) {
    tc_store_free(&reader->items);
  } else if (last) {
    memset((char *)last + TC_ALIGNMENT, 0, (size_t)last->used);
    last->used = 0;
  }
}

/* ---- errors ---- */

int32_t tc_record_fail(tc_reader *reader, const char *what) {
  if (!tc_record_failed(reader)) {
    const int length = (int)strcspn(reader->record, " ");
    tc_error_set(reader->error, TC_INVALID, "the description is damaged, in a record \"%.*s\": %s", length,
                 reader->record, what);
  }
  return reader->error->code;
}

int32_t tc_record_no_memory(tc_reader *reader) {
  return tc_record_failed(reader) ? reader->error->code
                                  : tc_error_set(reader->error, TC_NO_MEMORY, "no memory for a description");
}

/* ---- fields ---- */

static int64_t number(tc_reader *r) {
  if (tc_record_failed(r) || r->end - r->at < 8) {
    tc_record_fail(r, "it ends too early");
    return 0;
  }
  uint64_t value = 0;
  for (int i = 8; i-- > 0;) {
    value = value << 8 | r->at[i];
  }
  r->at += 8;
  return (int64_t)value;
}

static int64_t within(tc_reader *r, int64_t least, int64_t most) {
  const int64_t value = number(r);
  if (value < least || value > most) {
    tc_record_fail(r, "a number is out of range");
  }
  return tc_record_failed(r) ? 0 : value;
}

/* Bytes, of which a multiple of 8 is there. */
static const void *bytes_of(tc_reader *r, int64_t *bytes) {
  *bytes = within(r, 0, r->end - r->at);
  const void *found = r->at;
  if (!tc_record_failed(r) && tc_round_up(*bytes, 8) > r->end - r->at) {
    tc_record_fail(r, "it ends too early");
  }
  r->at += tc_record_failed(r) ? 0 : tc_round_up(*bytes, 8);
  return found;
}

static const char *text(tc_reader *r) {
  int64_t bytes;
  const char *found = bytes_of(r, &bytes);
  if (tc_record_failed(r) || bytes == 0 || memchr(found, 0, (size_t)bytes) != found + bytes - 1) {
    tc_record_fail(r, "a text has no end");
    return "";
  }
  return found;
}

static void item(tc_reader *r, char kind, void *items, int64_t i) {
  if (kind == 't') {
    ((const char **)items)[i] = text(r);
  } else if (kind == 'o') {
    tc_operand *operand = (tc_operand *)items + i;
    operand->space = (int32_t)within(r, INT32_MIN, INT32_MAX);
    operand->index = (int32_t)within(r, INT32_MIN, INT32_MAX);
    operand->offset = number(r);
  } else if (kind == 'x') {
    tc_extent *extent = (tc_extent *)items + i;
    extent->value = within(r, -1, INT32_MAX);
    extent->number = within(r, -1, TC_MAX_BYTES);
  } else {
    ((int64_t *)items)[i] = number(r);
  }
}

/* So many items, each of which takes 8 bytes at least. */
static const void *items(tc_reader *r, char kind, int64_t count) {
  const size_t size = kind == 'o' ? sizeof(tc_operand) : kind == 'x' ? sizeof(tc_extent) : sizeof(int64_t);
  void *found = tc_record_failed(r) ? NULL : tc_store_take(&r->items, count, size);
  if (!found) {
    tc_record_no_memory(r);
    return NULL;
  }
  for (int64_t i = 0; i < count && !tc_record_failed(r); i++) {
    item(r, kind, found, i);
  }
  return found;
}

int32_t tc_record_read(tc_reader *r, tc_field fields[TC_MOST_FIELDS]) {
  r->record = "kind";
  if (r->at == r->end || tc_record_failed(r)) {
    return TC_RECORD_KINDS;
  }
  const int32_t kind = (int32_t)within(r, 0, TC_RECORD_KINDS - 1);
  const char *at = r->record = records[kind];
  memset(fields, 0, TC_MOST_FIELDS * sizeof(*fields));
  for (tc_field *field = fields; (at = strchr(at, ':')) && !tc_record_failed(r); field++) {
    const char of = at[1];
    at += 2;
    if (*at == '*') {
      field->number = within(r, 0, (r->end - r->at) / 8);
      field->data = items(r, of, field->number);
    } else if (of == 't') {
      field->text = text(r);
    } else if (of == 'b') {
      field->data = bytes_of(r, &field->number);
    } else if (of == 'o') {
      field->data = items(r, of, 1);
    } else {
      field->number = of == 'i' ? within(r, 0, INT32_MAX) : number(r);
    }
  }
  return tc_record_failed(r) ? TC_RECORD_KINDS : kind;
}

void *tc_store_copy(tc_store *store, const void *items, int64_t count, size_t size, tc_reader *reader) {
  void *copy = tc_record_failed(reader) ? NULL : tc_store_take(store, count, size);
  if (!copy) {
    tc_record_no_memory(reader);
    return NULL;
  }
  return count ? memcpy(copy, items, (size_t)count * size) : copy;
}

const char *tc_store_text(tc_store *store, const char *text, tc_reader *reader) {
  const char *copy = tc_store_copy(store, text, (int64_t)strlen(text) + 1, 1, reader);
  return copy ? copy : "";
}
