#include "runtime/json.h"

#include "tests/test.h"

using namespace flatshard;
using nlohmann::json;
using nlohmann::ordered_json;

namespace {

std::string error_of_text(const std::string& text, const JsonLimits& limits = {}) {
  return test::error_of([&] { checked_json<json>(text, "config.json", limits); });
}

}  // namespace

TEST_CASE("JSON of files is limited to a number of members that every reader accepts") {
  const auto object = [](int members) {
    std::string text = "{\"m\":0";
    for (int i = 1; i < members; ++i) text += str(",\"", i, "\":0");
    return text + '}';
  };
  CHECK(checked_json<json>(object(1 << 14), "config.json").size() == 1 << 14);
  CHECK(error_of_text(object(100'000)) == "config.json: invalid JSON: an object has more than 16384 members");
  CHECK(checked_json<json>(object(3), "config.json", {.members = 3}).size() == 3);
  CHECK(error_of_text(object(4), {.members = 3}) ==
        "config.json: invalid JSON: an object has more than 3 members");
}

TEST_CASE("JSON of files is limited in depth") {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  CHECK(error_of_text(nested(32)).empty());
  CHECK(error_of_text(nested(33)) == "config.json: invalid JSON: nested more than 32 levels deep");
  CHECK(error_of_text(nested(4), {.depth = 3}) ==
        "config.json: invalid JSON: nested more than 3 levels deep");
}

TEST_CASE("JSON that readers could understand differently is refused") {
  CHECK(error_of_text(R"({"a":1,"a":2})") == "config.json: invalid JSON: \"a\" appears twice");
  CHECK(error_of_text("[\"\xff\"]") == "config.json: invalid JSON: not UTF-8 at byte 2");
  CHECK(error_of_text("\xef\xbb\xbf{}") == "config.json: invalid JSON: begins with a byte order mark");
  CHECK(error_of_text(std::string("{}\0{}", 5)) == "config.json: invalid JSON: a zero byte at 2");
  CHECK(error_of_text(R"({"a\u0000b":1})") ==
        "config.json: invalid JSON: the name \"a\" contains a zero byte");
  CHECK(error_of_text(R"({"a\u0000b":1})", {.zero_bytes_in_names = true}).empty());
  CHECK(error_of_text("{\"a\":").starts_with("config.json: invalid JSON: "));
}

TEST_CASE("a value that cannot be parsed is discarded where the caller asks for it") {
  CHECK(parse_json_or_discard<json>("{\"a\":").is_discarded());
  CHECK(parse_json_or_discard<ordered_json>("[1]") == ordered_json{1});
  CHECK_THROWS_AS(parse_json<json>("{\"a\":"), json::parse_error);
}

TEST_CASE("the text of a value parses to the same value, in the order of its members") {
  const std::string text = R"({"b":[1,-2,0.5],"a":{"c":null,"d":"\u00e9"}})";
  CHECK(json_text(parse_json<ordered_json>(text)) ==
        "{\"b\":[1,-2,0.5],\"a\":{\"c\":null,\"d\":\"\xc3\xa9\"}}");
  CHECK(parse_json<json>(json_text(parse_json<json>(text), 2)) == parse_json<json>(text));
  CHECK(json_text(json("\xff"), kOneLine, InvalidUtf8::replaced) == "\"\xef\xbf\xbd\"");
  CHECK_THROWS_AS(json_text(json("\xff")), json::type_error);
}
