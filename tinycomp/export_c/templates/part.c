/* A part of the model as another target's code generator wrote it; compiled with -ffp-contract=off. */
#define @function@ @part@_function
@text@
int @part@(@part_signature@);
int @part@(@part_signature@) {
  return @part@_function(inputs, outputs, constants, scratch);
}
