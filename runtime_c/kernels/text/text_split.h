/* text_split: the parts of texts, side by side. There is one unit, since nobody knows before how many a text has. */
#ifndef TINYCOMP_KERNELS_TEXT_TEXT_SPLIT_H
#define TINYCOMP_KERNELS_TEXT_TEXT_SPLIT_H

#include "vocabulary.h"

#include "texts.h"

enum { TEXT_SPLIT_PARTS, TEXT_SPLIT_COUNTS, TEXT_SPLIT_WIDTH, TEXT_SPLIT_X, TEXT_SPLIT_HEAP, TEXT_SPLIT_PATTERN };

static void TC_NAME(tc_text_split_prepare)(tc_prepare *prepare) {
  const tc_text_split_params *p = prepare->params;
  const bool matches = p->mode == TC_SPLIT_MATCHES || p->mode == TC_SPLIT_BETWEEN_MATCHES;
  const bool has_pattern = matches || p->mode == TC_SPLIT_BETWEEN_TEXTS;
  TC_REQUIRE(prepare, p->mode >= TC_SPLIT_BETWEEN_SPACES && p->mode <= TC_SPLIT_LETTERS, "an unknown way to split");
  TC_REQUIRE(prepare, tc_present(prepare, TEXT_SPLIT_PATTERN) == has_pattern, "a pattern is missing, or in vain");
  TC_REQUIRE(prepare, p->texts >= 0 && p->most >= 0 && p->total >= 0 && p->total <= TEXT_HEAP_MOST && p->fewest >= 0,
             "%lld texts of up to %lld parts", (long long)p->texts, (long long)p->most);
  TC_REQUIRE(prepare, p->mode != TC_SPLIT_BETWEEN_TEXTS || (p->delimiter >= 1 && p->delimiter <= TEXT_HEAP_MOST),
             "a delimiter of %lld bytes", (long long)p->delimiter);
  TC_REQUIRE(prepare, !matches || (p->states >= 1 && p->classes >= 1), "an automaton of %lld states and %lld classes",
             (long long)p->states, (long long)p->classes);
  const int64_t parts = TC_PRODUCT(prepare, p->texts, p->most);
  tc_touch(prepare, TEXT_SPLIT_PARTS, parts, sizeof(text_span));
  tc_touch(prepare, TEXT_SPLIT_COUNTS, p->texts, sizeof(int64_t));
  tc_touch(prepare, TEXT_SPLIT_WIDTH, 1, sizeof(int64_t));
  tc_touch(prepare, TEXT_SPLIT_X, p->texts, sizeof(text_span));
  text_touch_heap(prepare, TEXT_SPLIT_HEAP, p->x_bytes);
  if (matches) {
    tc_touch(prepare, TEXT_SPLIT_PATTERN, text_automaton_words(prepare, p->states, p->classes), sizeof(int32_t));
  } else if (has_pattern) {
    tc_touch(prepare, TEXT_SPLIT_PATTERN, p->delimiter, 1);
  }
  if (tc_refused(prepare)) {
    return;
  }
  tc_writes_counted(prepare, TEXT_SPLIT_PARTS);
  prepare->units = 1;
  prepare->cost = 16.0 * (double)p->texts + 2.0 * (double)p->total;
  prepare->work.integer_operations = (double)p->total;
}

/* The bytes of the white space at a place, 0 if there is none. */
static int text_space(const uint8_t *at, int64_t left) {
  if (at[0] < 0x80) {
    return (at[0] >= 9 && at[0] <= 13) || (at[0] >= 0x1c && at[0] <= 0x20);
  }
  uint32_t letter;
  const int bytes = text_letter(at, left, &letter);
  const bool is_space = letter == 0x85 || letter == 0xa0 || letter == 0x1680 ||
                        (letter >= 0x2000 && letter <= 0x200a) || letter == 0x2028 || letter == 0x2029 ||
                        letter == 0x202f || letter == 0x205f || letter == 0x3000;
  return is_space ? bytes : 0;
}

/* Where a text is being split. */
typedef struct text_cut {
  text_bytes text;
  int64_t at, cuts; /* the next byte, and how often the text has been cut */
  int64_t from, to; /* the part that was found last */
  bool ended;
} text_cut;

static bool text_next_word(const tc_text_split_params *p, text_cut *cut) {
  const text_bytes text = cut->text;
  int bytes;
  while (cut->at < text.length && (bytes = text_space(text.data + cut->at, text.length - cut->at))) {
    cut->at += bytes;
  }
  if (cut->at >= text.length) {
    return false;
  }
  cut->from = cut->at;
  if (p->limit >= 0 && cut->cuts++ >= p->limit) {
    cut->at = text.length;
  }
  while (cut->at < text.length && !text_space(text.data + cut->at, text.length - cut->at)) {
    uint32_t letter;
    cut->at += text_letter(text.data + cut->at, text.length - cut->at, &letter);
  }
  cut->to = cut->at;
  return true;
}

/* A delimiter at a place or behind it, or the end. */
static int64_t text_search(text_bytes text, int64_t at, const uint8_t *wanted, int64_t length) {
  while (text.length - at >= length) {
    const uint8_t *first = memchr(text.data + at, wanted[0], (size_t)(text.length - at - length + 1));
    if (!first) {
      break;
    }
    at = first - text.data;
    if (!memcmp(first, wanted, (size_t)length)) {
      return at;
    }
    at++;
  }
  return text.length;
}

static bool text_next_piece(const tc_text_split_params *p, const uint8_t *delimiter, text_cut *cut) {
  if (cut->ended) {
    return false;
  }
  const bool may_cut = p->limit < 0 || cut->cuts++ < p->limit;
  cut->from = cut->at;
  cut->to = may_cut ? text_search(cut->text, cut->at, delimiter, p->delimiter) : cut->text.length;
  cut->ended = !may_cut || cut->text.length - cut->to < p->delimiter;
  cut->to = cut->ended ? cut->text.length : cut->to;
  cut->at = cut->to + p->delimiter;
  return true;
}

/* The next match that is not empty, from a place on; false if there is none. */
static bool text_next_match(const tc_text_split_params *p, const int32_t *automaton, text_cut *cut) {
  for (; cut->at < cut->text.length; cut->at++) {
    const int64_t length =
        text_match_length(automaton, p->states, p->classes, cut->text.data + cut->at, cut->text.length - cut->at);
    if (length > 0) {
      cut->from = cut->at;
      cut->to = cut->at += length;
      return true;
    }
  }
  return false;
}

static bool text_next_between(const tc_text_split_params *p, const int32_t *automaton, text_cut *cut) {
  if (cut->ended) {
    return false;
  }
  const int64_t start = cut->at;
  cut->ended = !text_next_match(p, automaton, cut);
  cut->to = cut->ended ? cut->text.length : cut->from;
  cut->from = start;
  return true;
}

static bool text_next_letter(text_cut *cut) {
  if (cut->at >= cut->text.length) {
    return false;
  }
  uint32_t letter;
  cut->from = cut->at;
  cut->to = cut->at += text_letter(cut->text.data + cut->at, cut->text.length - cut->at, &letter);
  return true;
}

static bool text_next_part(const tc_text_split_params *p, const void *pattern, text_cut *cut) {
  switch (p->mode) {
    case TC_SPLIT_BETWEEN_SPACES:
      return text_next_word(p, cut);
    case TC_SPLIT_BETWEEN_TEXTS:
      return text_next_piece(p, pattern, cut);
    case TC_SPLIT_MATCHES:
      return text_next_match(p, pattern, cut);
    case TC_SPLIT_BETWEEN_MATCHES:
      return text_next_between(p, pattern, cut);
    default:
      return text_next_letter(cut);
  }
}

/* Whether a part has so many letters. */
static bool text_has_letters(const uint8_t *data, int64_t length, int64_t wanted) {
  int64_t letters = 0;
  if (length < wanted) {
    return false;
  }
  for (int64_t i = 0; i < length && letters < wanted; i++) {
    letters += (data[i] & 0xc0) != 0x80;
  }
  return letters >= wanted;
}

static void TC_NAME(tc_text_split)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_text_split_params *p = call->params;
  const uint8_t *heap = call->operands[TEXT_SPLIT_HEAP];
  int64_t *counts = call->operands[TEXT_SPLIT_COUNTS], *width = call->operands[TEXT_SPLIT_WIDTH];
  int64_t parts = 0, total = 0, most = 0;
  if (begin >= end) {
    return;
  }
  *width = 0;
  for (int64_t i = 0; i < p->texts; i++) {
    text_cut cut = {.at = 0};
    if (!text_of(call, call->operands[TEXT_SPLIT_X], i, heap, p->x_bytes, &cut.text)) {
      return;
    }
    total += cut.text.length;
    if (total > p->total) {
      tc_fail(call, "texts are longer than they may be");
      return;
    }
    const int64_t base = cut.text.data - heap;
    int64_t count = 0;
    while (text_next_part(p, call->operands[TEXT_SPLIT_PATTERN], &cut)) {
      if (!text_has_letters(cut.text.data + cut.from, cut.to - cut.from, p->fewest)) {
        continue;
      }
      if (count++ >= p->most) {
        tc_fail(call, "a text has more parts than there is room for");
        return;
      }
      text_put(call->operands[TEXT_SPLIT_PARTS], parts++, base + cut.from, cut.to - cut.from);
    }
    counts[i] = count;
    most = tc_max(most, count);
  }
  *width = most;
}

#endif
