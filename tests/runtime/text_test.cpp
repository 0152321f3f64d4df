#include "runtime/text.h"

#include <new>
#include <system_error>

#include "runtime/reason.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("a printable text contains no control characters") {
  CHECK(printable("a\x1b[31mb\nc\x7f") == "a [31mb c ");
  CHECK(printable("a\xc2\x9b"
                  "31m") == "a  31m");  // U+009B starts an escape sequence, too
  CHECK(printable("caf\xc3\xa9 \xc2\xb5m") == "caf\xc3\xa9 \xc2\xb5m");
  CHECK(printable(std::string("a\0b", 3)) == "a b");
}

TEST_CASE("exhausted memory and threads are reported with the remedy") {
  CHECK(reason_of(std::bad_alloc()).starts_with("out of host memory: close other programs, raise the limit"));
  CHECK(reason_of(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)))
            .starts_with("cannot start another thread: raise the limit on processes and threads (ulimit -u"));
  CHECK(reason_of(std::runtime_error("corpus.tok: cannot open")) == "corpus.tok: cannot open");
}

TEST_CASE("consecutive numbers are printed as ranges") {
  CHECK(ranges({}) == "");
  CHECK(ranges({3}) == "3");
  CHECK(ranges({0, 1, 2, 5, 7, 8}) == "0-2, 5, 7-8");
}
