#include "runtime/base64.h"

#include "tests/test.h"

using namespace flatshard;

TEST_CASE("base64 has the examples of RFC 4648, with and without padding") {
  const std::pair<std::string, std::string> examples[] = {{"", ""},
                                                          {"f", "Zg=="},
                                                          {"fo", "Zm8="},
                                                          {"foo", "Zm9v"},
                                                          {"foob", "Zm9vYg=="},
                                                          {"fooba", "Zm9vYmE="},
                                                          {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : examples) {
    CAPTURE(bytes);
    CHECK(to_base64(bytes) == text);
    CHECK(from_base64(text) == bytes);
    CHECK(from_base64(text.substr(0, text.find('='))) == bytes);
  }
}

TEST_CASE("base64 of every byte comes back") {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += static_cast<char>(i * i % 251 + i);
  CHECK(from_base64(to_base64(bytes)) == bytes);
}

TEST_CASE("text that is no base64 is refused") {
  for (const char* const text :
       {"Z", "Zm9vZ", "Zm9v====", "Zg===", "Zg=", "=", "Zm 9", "Zm-v", "Zg==Zg==", "b'x'"}) {
    CAPTURE(text);
    CHECK_FALSE(from_base64(text).has_value());
  }
}
