  static _Alignas(@NAME@_WEIGHTS_ALIGNMENT) unsigned char weights[@NAME@_WEIGHTS_BYTES];
  FILE *file = fopen("@name@_weights.bin", "rb");
  if (!file || fread(weights, 1, sizeof(weights), file) != sizeof(weights)) {
    printf("there is no @name@_weights.bin here\n");
    return 1;
  }
  fclose(file);
