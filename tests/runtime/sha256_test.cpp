#include "runtime/sha256.h"

#include <algorithm>

#include "tests/test.h"

using namespace flatshard;

namespace {

std::string digest(const std::string& text, size_t piece) {
  Sha256 hash;
  for (size_t i = 0; i < text.size(); i += piece) hash.add(text.data() + i, std::min(piece, text.size() - i));
  return hash.hex();
}

}  // namespace

TEST_CASE("SHA-256 gives the published digests, however the input is split") {
  const std::string million(1000000, 'a');
  for (const size_t piece : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{100000}}) {
    CAPTURE(piece);
    CHECK(digest("", piece) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(digest("abc", piece) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", piece) ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(digest(million, piece) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}
