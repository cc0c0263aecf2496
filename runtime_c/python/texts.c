/* The extension module tinycomp.runtime._texts: texts of Python as the C runtime has them, which are spans of a heap of
 * UTF-8, and back. Arrays come by the buffer protocol: of objects, of spans (two uint32 each: first byte, bytes) and of
 * bytes. A surrogate without its other half has the bytes that CPython's handler "surrogatepass" gives it. */
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct span {
  uint32_t start, length;
} span;

/* The UTF-8 of a text; `kept` is what holds it, if that is not the text itself. NULL with an exception. */
static const char *bytes_of(PyObject *text, Py_ssize_t *length, PyObject **kept) {
  *kept = NULL;
  const char *data = PyUnicode_AsUTF8AndSize(text, length);
  if (data || !PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
    return data;
  }
  PyErr_Clear();
  *kept = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
  if (*kept) {
    *length = PyBytes_Size(*kept);
  }
  return *kept ? PyBytes_AsString(*kept) : NULL;
}

/* A view of contiguous objects; false with an exception. */
static bool view_objects(PyObject *array, int flags, Py_buffer *view) {
  if (PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | flags)) {
    return false;
  }
  if (view->itemsize != sizeof(PyObject *) || !view->format || strcmp(view->format, "O") != 0) {
    PyErr_SetString(PyExc_TypeError, "an array of objects is needed");
    PyBuffer_Release(view);
    return false;
  }
  return true;
}

/* measure(objects): the bytes of all texts, and those of the longest. TypeError(index, object) for what is no text. */
static PyObject *measure(PyObject *module, PyObject *array) {
  (void)module;
  Py_buffer view;
  if (!view_objects(array, 0, &view)) {
    return NULL;
  }
  long long total = 0, longest = 0;
  PyObject *result = NULL;
  PyObject *const *objects = view.buf;
  for (Py_ssize_t i = 0; i < view.len / view.itemsize; i++) {
    PyObject *text = objects[i] ? objects[i] : Py_None, *kept;
    Py_ssize_t length;
    if (!PyUnicode_Check(text)) {
      PyObject *about = Py_BuildValue("(nO)", i, text);
      if (about) {
        PyErr_SetObject(PyExc_TypeError, about);
        Py_DECREF(about);
      }
      goto end;
    }
    if (!bytes_of(text, &length, &kept)) {
      goto end;
    }
    Py_XDECREF(kept);
    total += length;
    longest = length > longest ? length : longest;
  }
  result = Py_BuildValue("(LL)", total, longest);
end:
  PyBuffer_Release(&view);
  return result;
}

/* Copies texts; returns the byte behind them, or -1 with an exception. */
static Py_ssize_t copy_texts(const Py_buffer *objects, const Py_buffer *spans, const Py_buffer *heap, Py_ssize_t at) {
  for (Py_ssize_t i = 0; i < objects->len / objects->itemsize; i++) {
    PyObject *text = ((PyObject *const *)objects->buf)[i], *kept;
    Py_ssize_t length;
    const char *data = text && PyUnicode_Check(text) ? bytes_of(text, &length, &kept) : NULL;
    if (!data || length > heap->len - at) {
      if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "the texts are not those that were measured");
      }
      if (data) {
        Py_XDECREF(kept);
      }
      return -1;
    }
    memcpy((char *)heap->buf + at, data, (size_t)length);
    Py_XDECREF(kept);
    ((span *)spans->buf)[i] = (span){(uint32_t)at, (uint32_t)length};
    at += length;
  }
  return at;
}

/* encode(objects, spans, heap, start): copies texts into the heap from a byte on; returns the byte behind them. */
static PyObject *encode(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *given[3];
  Py_buffer objects, spans, heap;
  Py_ssize_t at;
  if (!PyArg_ParseTuple(arguments, "OOOn", &given[0], &given[1], &given[2], &at) ||
      !view_objects(given[0], 0, &objects)) {
    return NULL;
  }
  PyObject *result = NULL;
  if (!PyObject_GetBuffer(given[1], &spans, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)) {
    if (!PyObject_GetBuffer(given[2], &heap, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)) {
      const Py_ssize_t count = objects.len / objects.itemsize;
      if (spans.len != count * (Py_ssize_t)sizeof(span) || at < 0 || at > heap.len || heap.len > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "the arrays do not fit each other");
      } else {
        at = copy_texts(&objects, &spans, &heap, at);
        result = at < 0 ? NULL : PyLong_FromSsize_t(at);
      }
      PyBuffer_Release(&heap);
    }
    PyBuffer_Release(&spans);
  }
  PyBuffer_Release(&objects);
  return result;
}

/* Makes the texts of spans; false with an exception. */
static bool make_texts(const Py_buffer *objects, const Py_buffer *spans, const Py_buffer *heap) {
  for (Py_ssize_t i = 0; i < objects->len / objects->itemsize; i++) {
    const span at = ((const span *)spans->buf)[i];
    if ((uint64_t)at.start + at.length > (uint64_t)heap->len) {
      PyErr_SetString(PyExc_ValueError, "a text lies outside of its heap");
      return false;
    }
    PyObject *text = PyUnicode_DecodeUTF8((const char *)heap->buf + at.start, at.length, "surrogatepass");
    if (!text) {
      return false;
    }
    PyObject **place = (PyObject **)objects->buf + i, *before = *place;
    *place = text;
    Py_XDECREF(before);
  }
  return true;
}

/* decode(spans, heap, objects): makes texts of spans. ValueError if one leaves the heap, or is no UTF-8. */
static PyObject *decode(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *given[3];
  Py_buffer objects, spans, heap;
  if (!PyArg_ParseTuple(arguments, "OOO", &given[0], &given[1], &given[2]) ||
      !view_objects(given[2], PyBUF_WRITABLE, &objects)) {
    return NULL;
  }
  bool done = false;
  if (!PyObject_GetBuffer(given[0], &spans, PyBUF_C_CONTIGUOUS)) {
    if (!PyObject_GetBuffer(given[1], &heap, PyBUF_C_CONTIGUOUS)) {
      if (spans.len != objects.len / objects.itemsize * (Py_ssize_t)sizeof(span)) {
        PyErr_SetString(PyExc_ValueError, "the arrays do not fit each other");
      } else {
        done = make_texts(&objects, &spans, &heap);
      }
      PyBuffer_Release(&heap);
    }
    PyBuffer_Release(&spans);
  }
  PyBuffer_Release(&objects);
  return done ? Py_NewRef(Py_None) : NULL;
}

static PyMethodDef methods[] = {
    {"measure", measure, METH_O, NULL},
    {"encode", encode, METH_VARARGS, NULL},
    {"decode", decode, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_texts", .m_size = 0, .m_methods = methods};

PyMODINIT_FUNC PyInit__texts(void) { return PyModule_Create(&definition); }
