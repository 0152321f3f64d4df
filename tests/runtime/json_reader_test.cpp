#include "runtime/json_reader.h"

#include "runtime/json.h"
#include "tests/test.h"

using namespace flatshard;
using nlohmann::json;

namespace {

JsonReader reader_of(const std::string& text, const std::string& keys = "") {
  return {"f.json", json::parse(text), keys};
}

template <class Read>
std::string error_of(const std::string& text, Read&& read) {
  return test::error_of([&] { read(reader_of(text)); });
}

}  // namespace

TEST_CASE("a value is read with its type, and a missing or null one gives the default") {
  const JsonReader in = reader_of(
      R"({"n": 7, "x": 0.5, "t": true, "s": "word", "l": ["a", "b"], "p": [1, 2.5], "null": null})");
  CHECK(in.whole("n", 7, 7) == 7);
  CHECK(in.size("n") == 7);
  CHECK(in.number("x") == 0.5);
  CHECK(in.number("n") == 7);
  CHECK(in.positive("x") == 0.5);
  CHECK(in.positives("p", 2) == std::vector<double>{1, 2.5});
  CHECK(in.flag("t", false));
  CHECK(in.text("s") == "word");
  CHECK(in.texts("l") == std::vector<std::string>{"a", "b"});
  for (const char* absent : {"none", "null"}) {
    CHECK(!in.has(absent));
    CHECK(in.is_null(absent) == (std::string(absent) == "null"));
    CHECK(in.size(absent, 3) == 3);
    CHECK(in.positive(absent, 1.5) == 1.5);
    CHECK(in.flag(absent, true));
    CHECK(in.text(absent, "x") == "x");
    CHECK(in.texts(absent).empty());
  }
}

TEST_CASE("an error has the file, the path of keys, the value and what it must be") {
  const std::string text = R"({"a": {"b": [{"c": 1}, {"c": "two"}]}})";
  const auto read = [](const JsonReader& in) { in.object("a").objects("b", 2)[1].size("c"); };
  CHECK(error_of(text, read) == "f.json: a.b[1].c is \"two\", must be a whole number from 1 to 2147483647");
  CHECK(error_of("{}", read) == "f.json: a is missing");
  CHECK(error_of(R"({"a": 5})", read) == "f.json: a is 5, must be an object");
  CHECK(error_of(R"({"a": {"b": {}}})", read) == "f.json: a.b is {}, must be a list");
  CHECK(error_of(R"({"a": {"b": [{}, null]}})", read) == "f.json: a.b[1] is null, must be an object");
  CHECK(error_of(R"({"a": {"b": [1, 2, 3]}})", read) == "f.json: a.b has 3 elements, must have at most 2");
  CHECK(error_of("[]", read) == "f.json: must be a JSON object");
  CHECK(test::error_of([] { reader_of("[]", "of"); }) == "f.json: of must be an object");
  CHECK(test::error_of([] { reader_of("{}", "of").text("a"); }) == "f.json: of.a is missing");
}

TEST_CASE("a number outside of its bounds is refused, not changed") {
  const auto whole = [](const char* value, int64_t least, int64_t most) {
    return error_of(str("{\"n\": ", value, '}'), [&](const JsonReader& in) { in.whole("n", least, most); });
  };
  CHECK(whole("-3", -3, 5).empty());
  CHECK(whole("-4", -3, 5) == "f.json: n is -4, must be a whole number from -3 to 5");
  CHECK(whole("6", -3, 5) == "f.json: n is 6, must be a whole number from -3 to 5");
  CHECK(whole("2.0", -3, 5) == "f.json: n is 2.0, must be a whole number from -3 to 5");
  CHECK(whole("9223372036854775807", 0, INT64_MAX).empty());
  CHECK(whole("9223372036854775808", 0, INT64_MAX) ==
        "f.json: n is 9223372036854775808, must be a whole number from 0 to 2^63 - 1");
  CHECK(whole("18446744073709551615", INT64_MIN, INT64_MAX) ==
        "f.json: n is 18446744073709551615, must be a whole number below 2^63");
  CHECK(error_of(R"({"x": 0})", [](const JsonReader& in) { in.positive("x", 1); }) ==
        "f.json: x is 0, must be a positive number");
  CHECK(error_of(R"({"x": 1e301})", [](const JsonReader& in) {
          in.positive("x");
        }).ends_with("must be a positive number"));
  CHECK(error_of(R"({"x": [1, 0]})", [](const JsonReader& in) { in.positives("x", 2); }) ==
        "f.json: x is [1,0], must be a list of 2 positive numbers");
  CHECK(error_of(R"({"x": [1]})", [](const JsonReader& in) { in.positives("x", 2); }) ==
        "f.json: x is [1], must be a list of 2 positive numbers");
}

TEST_CASE("a value of another type is refused") {
  const std::string text = R"({"m": 1, "null": null})";
  CHECK(error_of(text, [](const JsonReader& in) { in.flag("m", false); }) ==
        "f.json: m is 1, must be true or false");
  CHECK(error_of(text, [](const JsonReader& in) { in.text("m", ""); }) == "f.json: m is 1, must be a string");
  CHECK(error_of(text, [](const JsonReader& in) { in.text("null"); }) ==
        "f.json: null is null, must be a string");
  CHECK(error_of(text, [](const JsonReader& in) { in.require("null"); }) == "f.json: null is missing");
  CHECK(error_of(text, [](const JsonReader& in) { in.texts("m", "a list of names"); }) ==
        "f.json: m is 1, must be a list of names");
  CHECK(error_of(text, [](const JsonReader& in) { in.must(false, "none", "there"); }) ==
        "f.json: none is missing, must be there");
}

TEST_CASE("a long value is described in errors, not printed") {
  const auto shown = [](const json& value) {
    const std::string error = test::error_of([&] {
      JsonReader("f.json", json{{"k", value}}).must(false, "k", "short");
    });
    const std::string begin = "f.json: k is ", end = ", must be short";
    CHECK(error.starts_with(begin));
    CHECK(error.ends_with(end));
    return error.substr(begin.size(), error.size() - begin.size() - end.size());
  };
  const std::string fits(118, 'x');
  CHECK(shown(fits) == '"' + fits + '"');
  CHECK(shown(fits + 'x') == "a string of 119 bytes");
  CHECK(shown(json(std::vector<int>(59, 7))) == json(std::vector<int>(59, 7)).dump());
  CHECK(shown(json(std::vector<int>(60, 7))) == "a list of 60 elements");
  CHECK(shown(json{{"name", fits}}) == "an object of 1 member");
  CHECK(test::error_of([&] {
          JsonReader("f.json", json{{"k", std::vector<int>(60, 7)}}).object("k");
        }) == "f.json: k is a list of 60 elements, must be an object");
}

TEST_CASE("a label follows the place of an object, and a colon the label") {
  JsonReader in = reader_of(R"({"steps": [{"type": "Split", "n": {"x": -1}}]})").objects("steps", 1)[0];
  CHECK(in.where() == "f.json: steps[0]");
  CHECK(in.where("n") == "f.json: steps[0].n");
  in.label(in.text("type"));
  CHECK(in.where() == "f.json: steps[0] Split");
  CHECK(test::error_of([&] { in.object("n").positive("x"); }) ==
        "f.json: steps[0] Split: n.x is -1, must be a positive number");
}

TEST_CASE("an object takes the members that it lacks from its defaults") {
  const JsonReader in = reader_of(R"({"a": {"n": 1, "null": null}})");
  const JsonReader a = in.object("a", {{"n", 5}, {"m", 6}, {"null", 7}});
  CHECK(a.size("n") == 1);
  CHECK(a.size("m") == 6);
  CHECK(a.size("null") == 7);
  CHECK(in.object("b", {{"m", 0}}).whole("m", 0, 1) == 0);
  CHECK(test::error_of([&] {
          in.object("b", {{"m", 0}}).size("m");
        }) == "f.json: b.m is 0, must be a whole number from 1 to 2147483647");
}

TEST_CASE("a member that is neither known nor read is found, and no other") {
  const JsonReader in = reader_of(R"({"a": 1, "b": null, "c": 3})");
  CHECK(in.unknown_member() == "a");
  CHECK(in.unknown_member({"a", "b"}) == "c");
  in.size("a");
  CHECK(!in.has("b"));
  CHECK(in.unknown_member() == "c");
  CHECK(!in.unknown_member({"c"}));
}

TEST_CASE("an object keeps its file alive, and an ordered reader the order of its members") {
  const auto part = [] {
    return OrderedJsonReader("f.json", nlohmann::ordered_json::parse(R"({"o": {"z": 1, "a": 2}})"))
        .object("o");
  };
  const OrderedJsonReader in = part();
  std::string names;
  for (const auto& [name, value] : in.members().items()) names += name;
  CHECK(names == "za");
  CHECK(in.unknown_member() == "z");
}
