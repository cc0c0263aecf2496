  {
@declare@
    test_begin();
    const int status = @name@_run(@given@);
    test_end();
    if (status != @NAME@_OK) {
      printf("the run failed with status %d\n", status);
      return 1;
    }
@compare@
  }
