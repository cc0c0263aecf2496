"""ONNX's node tests with nothing changed but what is declared: the results stay the same, whatever a model claims."""
