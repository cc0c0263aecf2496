/* text_normalize: texts without stop words, in another case. There is one unit, since what is left lies side by side.
 *
 * A table of cases is int64 words: where the page of every 256 code points begins, or 0; and the pages, a word for each
 * code point. Up to three code points take its place, of 21, 21 and 19 bits, 0 for none; bit 61 says that it has no say
 * in what is a word (it is case-ignorable), bit 62 that it is cased. */
#ifndef TINYCOMP_KERNELS_TEXT_TEXT_NORMALIZE_H
#define TINYCOMP_KERNELS_TEXT_TEXT_NORMALIZE_H

#include "vocabulary.h"

#include "texts.h"

enum {
  TEXT_NORMALIZE_Y,
  TEXT_NORMALIZE_COUNT,
  TEXT_NORMALIZE_HEAP,
  TEXT_NORMALIZE_X,
  TEXT_NORMALIZE_X_HEAP,
  TEXT_NORMALIZE_CASES,
  TEXT_NORMALIZE_STOPPED_CASES,
  TEXT_NORMALIZE_STOPS
};
enum {
  TEXT_PAGE = 256,
  TEXT_SIGMA = 0x3a3,
  TEXT_FINAL_SIGMA = 0x3c2,
  TEXT_GROWTH = 3 /* a letter has up to this many times its bytes in another case */
};

static void text_check_cases(tc_prepare *prepare, int operand, int64_t pages, int64_t words) {
  TC_REQUIRE(prepare, tc_present(prepare, operand) == (words > 0) && pages >= 0 && pages <= words,
             "a table of cases of %lld words and %lld pages", (long long)words, (long long)pages);
  tc_touch(prepare, operand, words, sizeof(int64_t));
}

static void TC_NAME(tc_text_normalize_prepare)(tc_prepare *prepare) {
  const tc_text_normalize_params *p = prepare->params;
  const bool changes = p->case_words > 0;
  TC_REQUIRE(
      prepare,
      p->count >= 0 && p->total >= 0 && p->longest >= 0 && p->total <= TEXT_HEAP_MOST && p->longest <= TEXT_HEAP_MOST,
      "%lld texts of up to %lld bytes", (long long)p->count, (long long)p->longest);
  TC_REQUIRE(prepare, tc_present(prepare, TEXT_NORMALIZE_HEAP) == changes, "a heap is there only where texts change");
  TC_REQUIRE(prepare, p->kept >= 0 && p->kept <= p->x_bytes && (!changes || p->kept <= p->bytes),
             "%lld bytes to keep of a heap of %lld in one of %lld", (long long)p->kept, (long long)p->x_bytes,
             (long long)p->bytes);
  tc_touch(prepare, TEXT_NORMALIZE_Y, tc_max(p->count, 1), sizeof(text_span));
  tc_touch(prepare, TEXT_NORMALIZE_COUNT, 1, sizeof(int64_t));
  tc_touch(prepare, TEXT_NORMALIZE_X, p->count, sizeof(text_span));
  text_touch_heap(prepare, TEXT_NORMALIZE_X_HEAP, p->x_bytes);
  text_check_cases(prepare, TEXT_NORMALIZE_CASES, p->case_pages, p->case_words);
  text_check_cases(prepare, TEXT_NORMALIZE_STOPPED_CASES, p->stopped_pages, p->stopped_words);
  TC_REQUIRE(prepare, tc_present(prepare, TEXT_NORMALIZE_STOPS) == (p->stop_words > 0), "a table of %lld words",
             (long long)p->stop_words);
  if (p->stop_words > 0) {
    text_check_table(prepare, TEXT_NORMALIZE_STOPS, p->stop_slots, p->stop_words);
  }
  if (changes) {
    text_touch_heap(prepare, TEXT_NORMALIZE_HEAP, p->bytes);
  }
  if (tc_refused(prepare)) {
    return;
  }
  tc_counted(prepare, TEXT_NORMALIZE_Y, TEXT_NORMALIZE_COUNT, sizeof(text_span));
  if (changes) {
    tc_writes_some(prepare, TEXT_NORMALIZE_HEAP);
  }
  prepare->scratch_bytes = p->stop_words > 0 && p->stopped_words > 0 ? TEXT_GROWTH * p->longest + 1 : 0;
  prepare->units = 1;
  prepare->cost = 16.0 * (double)p->count + 2.0 * (double)p->total;
  prepare->work.integer_operations = (double)p->total;
}

typedef struct text_cases {
  const int64_t *table;
  int64_t pages, words;
  uint8_t ascii[0x80]; /* what takes the place of a letter of one byte, or TEXT_NOT_ASCII */
} text_cases;

static int64_t text_case(const text_cases *cases, uint32_t letter) {
  const int64_t page = letter / TEXT_PAGE;
  const int64_t start = page < cases->pages ? cases->table[page] : 0;
  return start > 0 && start <= cases->words - TEXT_PAGE ? cases->table[start + letter % TEXT_PAGE] : 0;
}

enum { TEXT_IGNORABLE = 1, TEXT_CASED = 2, TEXT_NOT_ASCII = 0xff };

static void text_cases_make(text_cases *cases, const int64_t *table, int64_t pages, int64_t words) {
  cases->table = table;
  cases->pages = pages;
  cases->words = words;
  for (uint32_t letter = 0; letter < 0x80; letter++) {
    const uint64_t others = (uint64_t)text_case(cases, letter) & (((uint64_t)1 << 61) - 1);
    cases->ascii[letter] = others >= 0x80 ? TEXT_NOT_ASCII : others ? (uint8_t)others : (uint8_t)letter;
  }
}

static int text_kind(const text_cases *cases, uint32_t letter) {
  return letter == TEXT_NO_LETTER ? 0 : (int)((uint64_t)text_case(cases, letter) >> 61 & 3);
}

/* Whether the sigma at a place ends a word: something cased is before it, and nothing cased follows. */
static bool text_is_final(const text_cases *cases, text_bytes text, int64_t at) {
  uint32_t letter = 0;
  int kind = 0;
  for (int64_t i = at; i > 0;) {
    for (i--; i > 0 && (text.data[i] & 0xc0) == 0x80; i--) {
    }
    text_letter(text.data + i, text.length - i, &letter);
    kind = text_kind(cases, letter);
    if (!(kind & TEXT_IGNORABLE)) {
      break;
    }
  }
  if ((kind & (TEXT_CASED | TEXT_IGNORABLE)) != TEXT_CASED) {
    return false;
  }
  for (int64_t i = at + 2; i < text.length;) {
    i += text_letter(text.data + i, text.length - i, &letter);
    kind = text_kind(cases, letter);
    if (!(kind & TEXT_IGNORABLE)) {
      return !(kind & TEXT_CASED);
    }
  }
  return true;
}

/* Writes a text in another case, no more than TEXT_GROWTH times as many bytes; returns how many. */
static int64_t text_change_case(const text_cases *cases, text_bytes text, uint8_t *to) {
  int64_t used = 0;
  for (int64_t i = 0; i < text.length;) {
    const uint8_t plain = text.data[i] < 0x80 ? cases->ascii[text.data[i]] : TEXT_NOT_ASCII;
    if (plain != TEXT_NOT_ASCII) {
      to[used++] = plain;
      i++;
      continue;
    }
    uint32_t letter;
    const int bytes = text_letter(text.data + i, text.length - i, &letter);
    const uint64_t word = letter == TEXT_NO_LETTER ? 0 : (uint64_t)text_case(cases, letter);
    uint32_t others[] = {(uint32_t)(word & 0x1fffff), (uint32_t)(word >> 21 & 0x1fffff),
                         (uint32_t)(word >> 42 & 0x7ffff)};
    uint8_t changed[12];
    int64_t length = 0;
    if (letter == TEXT_SIGMA && others[0] == TEXT_FINAL_SIGMA + 1 && text_is_final(cases, text, i)) {
      others[0] = TEXT_FINAL_SIGMA;
    }
    for (int k = 0; k < 3 && others[k]; k++) {
      length += text_write_letter(changed + length, others[k]);
    }
    if (!others[0] || length > TEXT_GROWTH * bytes) {
      memmove(to + used, text.data + i, (size_t)bytes);
      length = bytes;
    } else {
      memcpy(to + used, changed, (size_t)length);
    }
    used += length;
    i += bytes;
  }
  return used;
}

/* Puts one text behind what is there, unless it is a stop word; returns the bytes in use then, or -1. */
static int64_t text_normalize_one(const tc_call *call, const text_cases *cases, const text_cases *stopped,
                                  text_bytes text, int64_t used, int64_t *left) {
  const tc_text_normalize_params *p = call->params;
  if (p->stop_words > 0) {
    text_bytes compared = text;
    if (p->stopped_words > 0) {
      compared = (text_bytes){call->scratch, text_change_case(stopped, text, call->scratch)};
    }
    int64_t number;
    if (text_find(call->operands[TEXT_NORMALIZE_STOPS], p->stop_slots, p->stop_words, compared.data, compared.length,
                  &number)) {
      return used;
    }
  }
  int64_t start = text.data - (const uint8_t *)call->operands[TEXT_NORMALIZE_X_HEAP], length = text.length;
  if (p->case_words > 0) {
    if (TEXT_GROWTH * text.length > p->bytes - used) {
      tc_fail(call, "there is no room for the texts");
      return -1;
    }
    start = used;
    length = text_change_case(cases, text, (uint8_t *)call->operands[TEXT_NORMALIZE_HEAP] + used);
    used += length;
  }
  text_put(call->operands[TEXT_NORMALIZE_Y], (*left)++, start, length);
  return used;
}

static void TC_NAME(tc_text_normalize)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_text_normalize_params *p = call->params;
  int64_t *count = call->operands[TEXT_NORMALIZE_COUNT], used = p->kept, left = 0, total = 0;
  if (begin >= end) {
    return;
  }
  text_cases cases, stopped;
  text_cases_make(&cases, call->operands[TEXT_NORMALIZE_CASES], p->case_pages, p->case_words);
  text_cases_make(&stopped, call->operands[TEXT_NORMALIZE_STOPPED_CASES], p->stopped_pages, p->stopped_words);
  if (p->case_words > 0) {
    tc_memmove(call->operands[TEXT_NORMALIZE_HEAP], call->operands[TEXT_NORMALIZE_X_HEAP], (size_t)p->kept);
  }
  *count = 0;
  for (int64_t i = 0; i < p->count; i++) {
    text_bytes text;
    if (!text_of(call, call->operands[TEXT_NORMALIZE_X], i, call->operands[TEXT_NORMALIZE_X_HEAP], p->x_bytes, &text)) {
      return;
    }
    total += text.length;
    if (text.length > p->longest || total > p->total) {
      tc_fail(call, "texts are longer than they may be");
      return;
    }
    used = text_normalize_one(call, &cases, &stopped, text, used, &left);
    if (used < 0) {
      return;
    }
  }
  if (!left) {
    text_put(call->operands[TEXT_NORMALIZE_Y], left++, 0, 0);
  }
  *count = left;
}

#endif
