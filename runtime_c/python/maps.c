/* The extension module tinycomp.ops._maps: rows of numbers as dictionaries. A row takes a copy of one that has all keys
 * already, which costs no search for places and no growth. */
#include <Python.h>
#include <stdbool.h>
#include <string.h>

/* A dictionary from all labels to zero; NULL with an exception. */
static PyObject *empty_row(PyObject *labels) {
  PyObject *row = PyDict_New(), *zero = PyFloat_FromDouble(0.0);
  bool made = row && zero;
  for (Py_ssize_t i = 0; made && i < PyTuple_Size(labels); i++) {
    made = !PyDict_SetItem(row, PyTuple_GetItem(labels, i), zero);
  }
  Py_XDECREF(zero);
  if (!made) {
    Py_CLEAR(row);
  }
  return row;
}

/* Numbers by rows and columns, wherever they lie. */
typedef struct matrix {
  const char *data;
  Py_ssize_t rows, columns, row_stride, column_stride;
  bool is_double;
} matrix;

/* Whether a view is a matrix, or a vector, which is one row. */
static bool read_matrix(const Py_buffer *view, matrix *m) {
  m->is_double = view->format && !strcmp(view->format, "d");
  if (view->ndim < 1 || view->ndim > 2 || !view->format || (!m->is_double && strcmp(view->format, "f") != 0)) {
    return false;
  }
  const int last = view->ndim - 1;
  m->data = view->buf;
  m->rows = last ? view->shape[0] : 1;
  m->row_stride = last ? view->strides[0] : 0;
  m->columns = view->shape[last];
  m->column_stride = view->strides[last];
  return true;
}

/* Gives a dictionary the numbers of a row; false with an exception. */
static bool fill_row(PyObject *row, PyObject *labels, const matrix *m, const char *data) {
  for (Py_ssize_t i = 0; i < m->columns; i++, data += m->column_stride) {
    double value;
    if (m->is_double) {
      memcpy(&value, data, sizeof(value));
    } else {
      float narrow;
      memcpy(&narrow, data, sizeof(narrow));
      value = narrow;
    }
    PyObject *number = PyFloat_FromDouble(value);
    const bool failed = !number || PyDict_SetItem(row, PyTuple_GetItem(labels, i), number);
    Py_XDECREF(number);
    if (failed) {
      return false;
    }
  }
  return true;
}

/* One dictionary for each row; NULL with an exception. */
static PyObject *make_rows(PyObject *labels, const matrix *m) {
  PyObject *made = PyList_New(m->rows), *model = empty_row(labels);
  bool good = made && model;
  for (Py_ssize_t i = 0; good && i < m->rows; i++) {
    PyObject *row = i + 1 < m->rows ? PyDict_Copy(model) : Py_NewRef(model); /* which the last row may have */
    good = row && fill_row(row, labels, m, m->data + i * m->row_stride);
    if (row && PyList_SetItem(made, i, row)) { /* which takes the reference in any case */
      good = false;
    }
  }
  Py_XDECREF(model);
  if (!good) {
    Py_CLEAR(made);
  }
  return made;
}

/* rows(labels, array): a list with a dictionary for each row of a matrix of float32 or float64, from the labels of its
 * columns to its numbers; a vector is one row. None if there is not one label per column, or it is another array. */
static PyObject *rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
  (void)module;
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "expected labels and an array");
    return NULL;
  }
  Py_buffer view;
  PyObject *labels = PySequence_Tuple(arguments[0]);
  if (!labels || PyObject_GetBuffer(arguments[1], &view, PyBUF_STRIDES | PyBUF_FORMAT)) {
    Py_XDECREF(labels);
    return NULL;
  }
  matrix m;
  const bool fits = read_matrix(&view, &m) && m.columns == PyTuple_Size(labels);
  PyObject *made = fits ? make_rows(labels, &m) : Py_NewRef(Py_None);
  PyBuffer_Release(&view);
  Py_DECREF(labels);
  return made;
}

static PyMethodDef methods[] = {
    {"rows", (PyCFunction)(void (*)(void))rows, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_maps", .m_size = 0, .m_methods = methods};

PyMODINIT_FUNC PyInit__maps(void) { return PyModule_Create(&definition); }
