#include "runtime/cuda.h"
