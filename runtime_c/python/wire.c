/* The extension module tinycomp.ir._wire: messages of Protocol Buffers as objects of Python, by tables that the classes
 * of tinycomp.ir.messages have. Only what serialisers write is read; whatever is damaged or of another form is left to
 * protobuf's own parser, which is to judge it. See "Encoding" in the documentation of Protocol Buffers.
 * The bytes may be those of a mapped file, which others may write to meanwhile: what was checked is not read again. */
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum kind { INT64, INT32, UINT64, ENUM, FLOAT, DOUBLE, TEXT, BYTES, MESSAGE };
enum wire { VARINT, FIXED64, LENGTH, FIXED32 = 5 };
enum { DEEPEST = 100, LARGE = 4096, SHORT = 256, MOST_FIELDS = 32, MANY = 512 };

static const enum wire wires[] = {VARINT, VARINT, VARINT, VARINT, FIXED32, FIXED64, LENGTH, LENGTH, LENGTH};
/* Formats of struct, for views of many numbers. */
static const char *const formats[] = {"q", "i", "Q", NULL, "f", "d"};

/* One row of a table: what a field of a message is. */
typedef struct field {
  PyObject *name; /* NULL where no field has the number */
  PyObject *class;
  uint64_t values; /* of an enumeration: a bit for each */
  enum kind kind;
  bool repeated, one_of;
} field;

typedef struct source {
  PyObject *view; /* a memoryview of all bytes */
  const uint8_t *start;
  bool shares; /* whether long values are views of it */
} source;

typedef struct span {
  const uint8_t *at, *end;
} span;

/* One field as it is written: a number, or where its contents lie. */
typedef struct item {
  uint64_t number;
  span content;
  uint32_t tag;
} item;

static PyObject *read_message(const source *data, PyObject *class, span bytes, int depth);

static bool read_varint(span *bytes, uint64_t *value) {
  uint64_t sum = 0;
  for (int shift = 0; shift < 64 && bytes->at < bytes->end; shift += 7) {
    const uint64_t byte = *bytes->at++;
    if (shift == 63 && byte > 1) {
      return false;
    }
    sum |= (byte & 0x7F) << shift;
    if (byte < 0x80) {
      *value = sum;
      return true;
    }
  }
  return false;
}

static bool read_fixed(span *bytes, size_t size, uint64_t *value) {
  if ((size_t)(bytes->end - bytes->at) < size) {
    return false;
  }
  *value = 0;
  for (size_t i = 0; i < size; i++) {
    *value |= (uint64_t)bytes->at[i] << 8 * i;
  }
  bytes->at += size;
  return true;
}

static bool read_number(span *bytes, enum wire wire, uint64_t *value) {
  return wire == VARINT ? read_varint(bytes, value) : read_fixed(bytes, wire == FIXED64 ? 8 : 4, value);
}

static bool read_item(span *bytes, item *found) {
  uint64_t tag;
  if (!read_varint(bytes, &tag) || tag > UINT32_MAX || tag < 8) {
    return false;
  }
  found->tag = (uint32_t)tag;
  const enum wire wire = tag & 7;
  if (wire != LENGTH) {
    return (wire == VARINT || wire == FIXED64 || wire == FIXED32) && read_number(bytes, wire, &found->number);
  }
  uint64_t size;
  if (!read_varint(bytes, &size) || size > (uint64_t)(bytes->end - bytes->at)) {
    return false;
  }
  found->content = (span){bytes->at, bytes->at + size};
  bytes->at += size;
  return true;
}

static PyObject *number_of(const field *row, uint64_t value) {
  switch (row->kind) {
    case INT32:
      return PyLong_FromLong((int32_t)(uint32_t)value);
    case UINT64:
      return PyLong_FromUnsignedLongLong(value);
    case ENUM:
      return value < 64 && (row->values >> value & 1) ? PyLong_FromLongLong((long long)value) : NULL;
    case FLOAT: {
      const uint32_t bits = (uint32_t)value;
      float number;
      memcpy(&number, &bits, sizeof number);
      return PyFloat_FromDouble(number);
    }
    case DOUBLE: {
      double number;
      memcpy(&number, &value, sizeof number);
      return PyFloat_FromDouble(number);
    }
    default:
      return PyLong_FromLongLong((long long)value);
  }
}

/* The bytes of a span, as a view or a copy. */
static PyObject *bytes_of(const source *data, span bytes, bool shares) {
  if (shares) {
    return PySequence_GetSlice(data->view, bytes.at - data->start, bytes.end - data->start);
  }
  return PyBytes_FromStringAndSize((const char *)bytes.at, bytes.end - bytes.at);
}

/* The text of a span; its bytes if they are no UTF-8, as protobuf hands them over. */
static PyObject *text_of(const source *data, span bytes) {
  char near[SHORT];
  const Py_ssize_t length = bytes.end - bytes.at;
  PyObject *far = length > SHORT ? bytes_of(data, bytes, false) : NULL;
  if (length > SHORT && !far) {
    return NULL;
  }
  if (!far) {
    memcpy(near, bytes.at, (size_t)length);
  }
  const char *text = far ? PyBytes_AsString(far) : near;
  PyObject *made = PyUnicode_DecodeUTF8(text, length, NULL);
  if (!made && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
    PyErr_Clear();
    made = PyBytes_FromStringAndSize(text, length);
  }
  Py_XDECREF(far);
  return made;
}

static size_t size_of(const field *row) { return row->kind == INT32 || wires[row->kind] == FIXED32 ? 4 : 8; }

/* Bytes as a memoryview of the numbers of a field, which is indexed as a list is; takes the reference. */
static PyObject *numbers_in(PyObject *held, const field *row) {
  PyObject *plain = held ? PyMemoryView_FromObject(held) : NULL;
  PyObject *made = plain ? PyObject_CallMethod(plain, "cast", "s", formats[row->kind]) : NULL;
  Py_XDECREF(held);
  Py_XDECREF(plain);
  return made;
}

/* Many numbers as a memoryview: those of fixed size where they lie, others unpacked. */
static PyObject *many_numbers(const source *data, const field *row, span bytes) {
  const enum wire wire = wires[row->kind];
  const size_t size = size_of(row);
  PyObject *held = NULL;
  if (wire != VARINT) {
    held = (size_t)(bytes.end - bytes.at) % size ? NULL : bytes_of(data, bytes, data->shares);
  } else {
    size_t count = 0;
    for (const uint8_t *at = bytes.at; at < bytes.end; at++) {
      count += *at < 0x80;
    }
    held = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * size));
    char *to = held ? PyBytes_AsString(held) : NULL;
    for (size_t i = 0; to && (i < count || bytes.at < bytes.end); i++) {
      uint64_t value;
      if (i == count || !read_varint(&bytes, &value)) {
        Py_CLEAR(held);
        break;
      }
      memcpy(to, &value, size);
      to += size;
    }
  }
  return numbers_in(held, row);
}

/* How many items of one tag lie at the start of a span. */
static size_t count_alike(span bytes, uint32_t tag) {
  item next;
  size_t count = 0;
  while (bytes.at < bytes.end && read_item(&bytes, &next) && next.tag == tag) {
    count++;
  }
  return count;
}

/* Numbers each of which has a tag, as in long attributes, as a memoryview: the first, and `count` of what follows. */
static PyObject *tagged_numbers(const field *row, const item *first, span *bytes, size_t count) {
  const size_t size = size_of(row);
  PyObject *held = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((count + 1) * size));
  char *to = held ? PyBytes_AsString(held) : NULL;
  item next = *first;
  for (size_t i = 0; to && i <= count; i++, to += size) {
    if (i && (!read_item(bytes, &next) || next.tag != first->tag)) {
      Py_CLEAR(held);
      break;
    }
    memcpy(to, &next.number, size);
  }
  return numbers_in(held, row);
}

/* Appends to the list that an object has for a field; takes the reference. */
static bool append(PyObject *values, const field *row, PyObject *value) {
  if (!value) {
    return false;
  }
  PyObject *list = PyDict_GetItemWithError(values, row->name);
  bool done = !PyErr_Occurred();
  if (done && !list) {
    list = PyList_New(0);
    done = list && !PyDict_SetItem(values, row->name, list);
    Py_XDECREF(list);
  }
  done = done && PyList_Check(list) && !PyList_Append(list, value);
  Py_DECREF(value);
  return done;
}

static bool read_packed(const source *data, PyObject *values, const field *row, span bytes) {
  if (bytes.end - bytes.at >= LARGE && row->kind != ENUM) {
    const int known = PyDict_Contains(values, row->name);
    PyObject *many = known ? NULL : many_numbers(data, row, bytes);
    const bool done = many && !PyDict_SetItem(values, row->name, many);
    Py_XDECREF(many);
    return done;
  }
  while (bytes.at < bytes.end) {
    uint64_t number;
    if (!read_number(&bytes, wires[row->kind], &number) || !append(values, row, number_of(row, number))) {
      return false;
    }
  }
  return true;
}

/* One of the last two values of a field if it has these bytes, as texts in long lists are mostly the same few. */
static PyObject *seen_lately(PyObject *values, const field *row, span bytes) {
  PyObject *list = PyDict_GetItemWithError(values, row->name);
  const Py_ssize_t count = list && PyList_Check(list) ? PyList_Size(list) : 0;
  for (Py_ssize_t i = count - 1; i >= 0 && i >= count - 2; i--) {
    PyObject *value = PyList_GetItem(list, i);
    const Py_ssize_t length = value && PyBytes_Check(value) ? PyBytes_Size(value) : -1;
    if (length == bytes.end - bytes.at && !memcmp(PyBytes_AsString(value), bytes.at, (size_t)length)) {
      return Py_NewRef(value);
    }
  }
  return NULL;
}

static PyObject *value_of(const source *data, const field *row, const item *found, int depth) {
  const span content = found->content;
  switch (row->kind) {
    case MESSAGE:
      return read_message(data, row->class, content, depth + 1);
    case BYTES:
      return bytes_of(data, content, data->shares && content.end - content.at >= LARGE);
    case TEXT:
      return text_of(data, content);
    default:
      return number_of(row, found->number);
  }
}

static PyObject *table_name;

/* The rows of a class by field number; NULL with an exception. */
static const field *rows_of(PyObject *class) {
  PyObject *table = PyObject_GetAttr(class, table_name);
  const field *rows = table ? PyCapsule_GetPointer(table, NULL) : NULL;
  Py_XDECREF(table); /* the class has it */
  return rows;
}

/* Reads one field into the dictionary of an object; false with an exception, or without one if protobuf is to judge. */
static bool read_field(const source *data, PyObject *values, const field *row, const item *found, int depth) {
  const enum wire wire = found->tag & 7;
  if (row->repeated && wire == LENGTH && wires[row->kind] != LENGTH) {
    return read_packed(data, values, row, found->content);
  }
  if (wire != wires[row->kind]) {
    return false;
  }
  if (row->repeated) {
    PyObject *known = row->kind == BYTES ? seen_lately(values, row, found->content) : NULL;
    return append(values, row, known ? known : value_of(data, row, found, depth));
  }
  if (row->kind == MESSAGE && PyDict_Contains(values, row->name)) {
    return false; /* protobuf merges messages that come twice */
  }
  PyObject *value = value_of(data, row, found, depth);
  const bool done = value && !PyDict_SetItem(values, row->name, value);
  Py_XDECREF(value);
  return done;
}

static PyObject *read_message(const source *data, PyObject *class, span bytes, int depth) {
  const field *rows = depth < DEEPEST ? rows_of(class) : NULL;
  PyObject *made = rows ? PyObject_CallNoArgs(class) : NULL;
  PyObject *values = made ? PyObject_GenericGetDict(made, NULL) : NULL;
  bool done = values != NULL;
  uint32_t chosen = 0;
  while (done && bytes.at < bytes.end) {
    item found;
    done = read_item(&bytes, &found);
    const uint32_t number = done ? found.tag >> 3 : 0;
    const field *row = number < MOST_FIELDS ? &rows[number] : NULL;
    if (!done || !row || !row->name) {
      continue;
    }
    if (row->one_of) { /* of these protobuf keeps the last */
      done = !chosen || chosen == number;
      chosen = number;
    }
    const bool is_number =
        row->repeated && row->kind < TEXT && row->kind != ENUM && (found.tag & 7) == wires[row->kind];
    const size_t more = done && is_number && !PyDict_Contains(values, row->name) ? count_alike(bytes, found.tag) : 0;
    if (more >= MANY) {
      PyObject *numbers = tagged_numbers(row, &found, &bytes, more);
      done = numbers && !PyDict_SetItem(values, row->name, numbers);
      Py_XDECREF(numbers);
      continue;
    }
    done = done && read_field(data, values, row, &found, depth);
  }
  Py_XDECREF(values);
  if (!done) {
    Py_CLEAR(made);
  }
  return made;
}

static void free_rows(field *rows) {
  for (int i = 0; rows && i < MOST_FIELDS; i++) {
    Py_XDECREF(rows[i].name);
    Py_XDECREF(rows[i].class);
  }
  free(rows);
}

static void free_table(PyObject *table) { free_rows(PyCapsule_GetPointer(table, NULL)); }

static bool fill_row(field *rows, PyObject *number, PyObject *described) {
  const long place = PyLong_AsLong(number);
  PyObject *name, *class;
  unsigned long long values;
  int kind, repeated, one_of;
  if (place <= 0 || place >= MOST_FIELDS || rows[place].name ||
      !PyArg_ParseTuple(described, "UiOKpp", &name, &kind, &class, &values, &repeated, &one_of) || kind < 0 ||
      kind > MESSAGE) {
    if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_ValueError, "no such field");
    }
    return false;
  }
  rows[place] =
      (field){Py_NewRef(name), Py_NewRef(class), (uint64_t)values, (enum kind)kind, (bool)repeated, (bool)one_of};
  return true;
}

/* table(fields): what `message` wants of a class, from (name, kind, class, values, repeated, one of several) by their
 * numbers. */
static PyObject *table(PyObject *module, PyObject *fields) {
  (void)module;
  field *rows = PyDict_Check(fields) ? calloc(MOST_FIELDS, sizeof *rows) : NULL;
  PyObject *number, *described, *made = NULL;
  Py_ssize_t at = 0;
  bool done = rows != NULL;
  while (done && PyDict_Next(fields, &at, &number, &described)) {
    done = fill_row(rows, number, described);
  }
  if (done) {
    made = PyCapsule_New(rows, NULL, free_table);
  }
  if (!made) {
    free_rows(rows);
    if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_TypeError, "a dictionary is needed");
    }
  }
  return made;
}

/* message(class, view, shares): a message of a class; None if protobuf's parser is to judge the bytes. */
static PyObject *message(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *class;
  source data = {0};
  int shares;
  Py_buffer buffer;
  if (!PyArg_ParseTuple(arguments, "OOp", &class, &data.view, &shares)) {
    return NULL;
  }
  if (!PyMemoryView_Check(data.view)) {
    PyErr_SetString(PyExc_TypeError, "a memoryview is needed");
    return NULL;
  }
  if (PyObject_GetBuffer(data.view, &buffer, PyBUF_C_CONTIGUOUS)) {
    return NULL;
  }
  data.start = buffer.buf;
  data.shares = shares && buffer.itemsize == 1;
  PyObject *made = read_message(&data, class, (span){data.start, data.start + buffer.len}, 0);
  PyBuffer_Release(&buffer);
  return made || PyErr_Occurred() ? made : Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"message", message, METH_VARARGS, NULL},
    {"table", table, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_wire", .m_size = 0, .m_methods = methods};

PyMODINIT_FUNC PyInit__wire(void) {
  table_name = PyUnicode_InternFromString("TABLE");
  return table_name ? PyModule_Create(&definition) : NULL;
}
