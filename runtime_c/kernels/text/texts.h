/* Texts: spans of a heap of bytes, read as UTF-8. No span is trusted: one that leaves its heap has no text. */
#ifndef TINYCOMP_KERNELS_TEXT_TEXTS_H
#define TINYCOMP_KERNELS_TEXT_TEXTS_H

#include "vocabulary.h"

/* As it lies in an operand of type U64. */
typedef struct text_span {
  uint32_t start, length;
} text_span;

typedef struct text_bytes {
  const uint8_t *data;
  int64_t length;
} text_bytes;

/* A heap is named by 32 bits. */
#define TEXT_HEAP_MOST ((int64_t)UINT32_MAX)

/* States that a call reads a heap of so many bytes, or writes into one. */
static inline void text_touch_heap(tc_prepare *prepare, int operand, int64_t bytes) {
  TC_REQUIRE(prepare, bytes >= 0 && bytes <= TEXT_HEAP_MOST, "a heap of %lld bytes", (long long)bytes);
  tc_touch(prepare, operand, bytes, 1);
}

/* The text of a span; false, and the run fails, if it leaves the heap. */
TC_INLINE bool text_of(const tc_call *call, const void *spans, int64_t index, const void *heap, int64_t heap_bytes,
                       text_bytes *text) {
  text_span span;
  memcpy(&span, (const char *)spans + index * (int64_t)sizeof(span), sizeof(span));
  if ((int64_t)span.start + span.length > heap_bytes) {
    tc_fail(call, "a text lies outside of its heap");
    return false;
  }
  *text = (text_bytes){(const uint8_t *)heap + span.start, span.length};
  return true;
}

TC_INLINE void text_put(void *spans, int64_t index, int64_t start, int64_t length) {
  const text_span span = {(uint32_t)start, (uint32_t)length};
  memcpy((char *)spans + index * (int64_t)sizeof(span), &span, sizeof(span));
}

enum { TEXT_NO_LETTER = 0x7fffffff };

/* The bytes of the letter at the beginning of a text that is not empty; its code point, or TEXT_NO_LETTER for a byte
 * that begins none. */
static inline int text_letter(const uint8_t *at, int64_t left, uint32_t *letter) {
  const uint32_t first = at[0];
  const int bytes = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  *letter = TEXT_NO_LETTER;
  if (!bytes || bytes > left) {
    return 1;
  }
  uint32_t value = bytes == 1 ? first : first & (0x7fu >> bytes);
  for (int i = 1; i < bytes; i++) {
    if ((at[i] & 0xc0) != 0x80) {
      return 1;
    }
    value = value << 6 | (at[i] & 0x3f);
  }
  *letter = value;
  return bytes;
}

/* Writes a code point, up to four bytes; returns how many. */
static inline int text_write_letter(uint8_t *to, uint32_t letter) {
  if (letter < 0x80) {
    to[0] = (uint8_t)letter;
    return 1;
  }
  if (letter < 0x800) {
    to[0] = (uint8_t)(0xc0 | letter >> 6);
    to[1] = (uint8_t)(0x80 | (letter & 0x3f));
    return 2;
  }
  if (letter < 0x10000) {
    to[0] = (uint8_t)(0xe0 | letter >> 12);
    to[1] = (uint8_t)(0x80 | (letter >> 6 & 0x3f));
    to[2] = (uint8_t)(0x80 | (letter & 0x3f));
    return 3;
  }
  to[0] = (uint8_t)(0xf0 | (letter >> 18 & 7));
  to[1] = (uint8_t)(0x80 | (letter >> 12 & 0x3f));
  to[2] = (uint8_t)(0x80 | (letter >> 6 & 0x3f));
  to[3] = (uint8_t)(0x80 | (letter & 0x3f));
  return 4;
}

/* ---- tables of texts ---- */

/* A table of texts is int64 words: pairs for the slots of a hash table with open addressing, then the bytes of the
 * texts. A pair is where among the bytes a text begins times 2^32 plus its length plus 1, or 0 for no text; and the
 * number of the text. The hash is FNV-1a of 64 bits, of which the upper half is added to the lower. */
static inline void text_check_table(tc_prepare *prepare, int operand, int64_t slots, int64_t words) {
  TC_REQUIRE(prepare, slots >= 1 && slots <= (int64_t)1 << 30 && (slots & (slots - 1)) == 0, "a table of %lld slots",
             (long long)slots);
  TC_REQUIRE(prepare, words >= 2 * slots, "a table of %lld slots has %lld words", (long long)slots, (long long)words);
  tc_touch(prepare, operand, words, sizeof(int64_t));
}

TC_INLINE bool text_find(const int64_t *table, int64_t slots, int64_t words, const uint8_t *data, int64_t length,
                         int64_t *number) {
  const uint8_t *bytes = (const uint8_t *)(table + 2 * slots);
  const uint64_t room = (uint64_t)(words - 2 * slots) * sizeof(int64_t);
  uint64_t hash = 0xcbf29ce484222325u;
  for (int64_t i = 0; i < length; i++) {
    hash = (hash ^ data[i]) * 0x100000001b3u;
  }
  hash += hash >> 32;
  for (int64_t probe = 0; probe < slots; probe++) {
    const int64_t slot = (int64_t)((hash + (uint64_t)probe) & (uint64_t)(slots - 1));
    const uint64_t place = (uint64_t)table[2 * slot];
    if (!place) {
      return false;
    }
    const uint64_t start = place >> 32, size = (place & UINT32_MAX) - 1;
    if (size == (uint64_t)length && start + size <= room && !memcmp(bytes + start, data, (size_t)length)) {
      *number = table[2 * slot + 1];
      return true;
    }
  }
  return false;
}

/* ---- automata ---- */

enum { TEXT_AUTOMATON_HEAD = 256 };

/* An automaton is int32 words: the class of every byte, for every state the next one by class, and for every state
 * whether it accepts. The first state is where it begins; what is no state is a dead end. */
static inline int64_t text_automaton_words(tc_prepare *prepare, int64_t states, int64_t classes) {
  const int64_t steps = TC_PRODUCT(prepare, states, classes);
  return tc_refused(prepare) ? 0 : TEXT_AUTOMATON_HEAD + steps + states;
}

TC_INLINE int64_t text_step(const int32_t *automaton, int64_t states, int64_t classes, int64_t state, uint8_t byte) {
  const int32_t class = automaton[byte];
  const int32_t next = class < 0 || class >= classes ? -1 : automaton[TEXT_AUTOMATON_HEAD + state * classes + class];
  return next < 0 || next >= states ? -1 : next;
}

TC_INLINE bool text_accepts(const int32_t *automaton, int64_t states, int64_t classes, int64_t state) {
  return automaton[TEXT_AUTOMATON_HEAD + states * classes + state] != 0;
}

/* The bytes of the longest match at the beginning of a text, or -1. */
static inline int64_t text_match_length(const int32_t *automaton, int64_t states, int64_t classes, const uint8_t *at,
                                        int64_t left) {
  int64_t state = 0, longest = text_accepts(automaton, states, classes, 0) ? 0 : -1;
  for (int64_t i = 0; i < left; i++) {
    state = text_step(automaton, states, classes, state, at[i]);
    if (state < 0) {
      break;
    }
    longest = text_accepts(automaton, states, classes, state) ? i + 1 : longest;
  }
  return longest;
}

#endif
