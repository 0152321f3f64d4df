#include "tests/test.h"
