/* Zip files as APPNOTE.TXT 6.3 describes them, of which saved modules use the least: members are stored as they are,
 * there is no comment, and large files have the 64-bit records of 4.3.14 to 4.3.15. */
#include "archive.h"

#include <stdbool.h>
#include <string.h>

enum {
  END = 22,
  END_64 = 56,
  LOCATOR_64 = 20,
  ENTRY = 46,
  LOCAL = 30,
  EXTRA_64 = 1,
};
static const uint32_t end_mark = 0x06054b50, end_64_mark = 0x06064b50, locator_mark = 0x07064b50,
                      entry_mark = 0x02014b50, local_mark = 0x04034b50, saturated = 0xffffffff;

static uint64_t little(const unsigned char *p, int bytes) {
  uint64_t value = 0;
  for (int i = bytes; i-- > 0;) {
    value = value << 8 | p[i];
  }
  return value;
}

static uint32_t word(const unsigned char *p) { return (uint32_t)little(p, 4); }

/* The CRC-32 of ISO 3309, eight bytes at a time. */
static uint32_t checksum(const unsigned char *p, int64_t bytes) {
  uint32_t table[8][256];
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; bit++) {
      c = c & 1 ? 0xedb88320 ^ c >> 1 : c >> 1;
    }
    table[0][i] = c;
  }
  for (int k = 1; k < 8; k++) {
    for (int i = 0; i < 256; i++) {
      table[k][i] = table[0][table[k - 1][i] & 255] ^ table[k - 1][i] >> 8;
    }
  }
  uint32_t crc = ~0u;
  for (; bytes >= 8; bytes -= 8, p += 8) {
    const uint32_t low = crc ^ word(p), high = word(p + 4);
    crc = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^ table[4][low >> 24] ^
          table[3][high & 255] ^ table[2][high >> 8 & 255] ^ table[1][high >> 16 & 255] ^ table[0][high >> 24];
  }
  for (; bytes > 0; bytes--, p++) {
    crc = table[0][(crc ^ *p) & 255] ^ crc >> 8;
  }
  return ~crc;
}

/* Where the central directory lies, and how many entries it has; false if there is none. */
static bool directory(const unsigned char *file, int64_t bytes, int64_t *begin, int64_t *size, int64_t *entries) {
  const unsigned char *end = bytes >= END ? file + bytes - END : NULL;
  if (!end || word(end) != end_mark || little(end + 20, 2)) {
    return false;
  }
  uint64_t count = little(end + 10, 2), length = word(end + 12), offset = word(end + 16);
  if (offset == saturated || length == saturated || count == 0xffff) {
    const unsigned char *locator = bytes >= END + LOCATOR_64 ? end - LOCATOR_64 : NULL;
    const uint64_t at = locator && word(locator) == locator_mark ? little(locator + 8, 8) : UINT64_MAX;
    if (bytes < END_64 || at > (uint64_t)bytes - END_64 || word(file + at) != end_64_mark) {
      return false;
    }
    count = little(file + at + 32, 8);
    length = little(file + at + 40, 8);
    offset = little(file + at + 48, 8);
  }
  if (offset > (uint64_t)bytes || length > (uint64_t)bytes - offset || count > length / ENTRY) {
    return false;
  }
  *begin = (int64_t)offset;
  *size = (int64_t)length;
  *entries = (int64_t)count;
  return true;
}

/* Size and place of a member, which its entry holds in 64 bits where 32 do not suffice. */
static bool widen(const unsigned char *extra, int64_t bytes, uint64_t *stored, uint64_t *size, uint64_t *at) {
  uint64_t *wide[] = {size, stored, at};
  while (bytes >= 4) {
    const int64_t length = (int64_t)little(extra + 2, 2);
    if (length > bytes - 4) {
      return false;
    }
    if (little(extra, 2) == EXTRA_64) {
      const unsigned char *next = extra + 4, *last = next + length;
      for (int i = 0; i < 3; i++) {
        if (*wide[i] == saturated) {
          if (last - next < 8) {
            return false;
          }
          *wide[i] = little(next, 8);
          next += 8;
        }
      }
      return true;
    }
    extra += 4 + length;
    bytes -= 4 + length;
  }
  return false;
}

static int32_t damaged(const char *name, const char *what, tc_error *error) {
  return tc_error_set(error, TC_INVALID, "the file is damaged: %s \"%s\"; save the module again", what, name);
}

/* Checks the member of an entry of the directory, which is longer than a local header, and finds its bytes. */
static int32_t locate(const unsigned char *file, int64_t bytes, const unsigned char *entry, int64_t name_bytes,
                      int64_t extra_bytes, const char *name, tc_member *member, tc_error *error) {
  uint64_t stored = word(entry + 20), size = word(entry + 24), at = word(entry + 42);
  if ((stored == saturated || size == saturated || at == saturated) &&
      !widen(entry + ENTRY + name_bytes, extra_bytes, &stored, &size, &at)) {
    return damaged(name, "there is no size of", error);
  }
  if (little(entry + 10, 2) || stored != size) {
    return damaged(name, "it is compressed, the member", error);
  }
  if (at > (uint64_t)bytes - LOCAL || word(file + at) != local_mark) {
    return damaged(name, "there is no header of", error);
  }
  const uint64_t start = at + LOCAL + little(file + at + 26, 2) + little(file + at + 28, 2);
  if (start > (uint64_t)bytes || size > (uint64_t)bytes - start) {
    return damaged(name, "it is cut off, the member", error);
  }
  *member = (tc_member){file + start, (int64_t)size};
  if (checksum(member->data, member->bytes) != word(entry + 16)) {
    return damaged(name, "the checksum is wrong of", error);
  }
  return TC_OK;
}

int32_t tc_archive_find(const unsigned char *file, int64_t bytes, const char *name, tc_member *member,
                        tc_error *error) {
  int64_t at, size, entries;
  if (!directory(file, bytes, &at, &size, &entries)) {
    return tc_error_set(error, TC_INVALID, "this is not a saved module, or it is cut off");
  }
  const int64_t end = at + size;
  for (int64_t i = 0; i < entries && end - at >= ENTRY && word(file + at) == entry_mark; i++) {
    const unsigned char *entry = file + at;
    const int64_t name_bytes = (int64_t)little(entry + 28, 2), extra = (int64_t)little(entry + 30, 2);
    const int64_t whole = ENTRY + name_bytes + extra + (int64_t)little(entry + 32, 2);
    if (whole > end - at) {
      break;
    }
    if (name_bytes == (int64_t)strlen(name) && !memcmp(entry + ENTRY, name, (size_t)name_bytes)) {
      return locate(file, bytes, entry, name_bytes, extra, name, member, error);
    }
    at += whole;
  }
  return tc_error_set(error, TC_INVALID,
                      "there is no \"%s\" in the file: it has nodes that run on the host or in Python", name);
}
