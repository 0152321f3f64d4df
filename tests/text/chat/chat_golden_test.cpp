// Renderings of Hugging Face transformers: tests/golden/chat.json, made by tests/golden/chat.py.

#include <cstdlib>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "runtime/sha256.h"
#include "runtime/whole_file.h"
#include "source_dir.h"
#include "tests/test.h"
#include "text/chat/chat_template.h"

using namespace flatshard;
using nlohmann::json;

namespace {

const json& golden() {
  static const json all =
      json::parse(read_whole_file(std::string(kSourceDir) + "/tests/golden/chat.json", 1 << 20));
  return all;
}

Rendering rendered(const std::string& source, const json& record, bool prompt) {
  return ChatTemplate(source, "golden", golden()["tokens"])
      .render(parse_chat_record(record["json"].get<std::string>(), "record").conversation,
              {.add_generation_prompt = prompt, .settings = {.date = golden()["date"], .limits = {}}});
}

std::string digest(const std::string& text) {
  Sha256 hash;
  hash.add(text.data(), text.size());
  return hash.hex();
}

void check_rendering(const std::string& source, const json& record, bool prompt, const json& expected) {
  CAPTURE(source);
  Rendering rendering;
  const std::string error = test::error_of([&] { rendering = rendered(source, record, prompt); });
  CAPTURE(error);
  CHECK(error.empty() == !expected.contains("error"));
  if (!error.empty()) return;
  CHECK(rendering.text == expected["text"].get<std::string>());
  json generated = json::array();  // neighbors are one span
  for (const json& span : expected["generated"])
    if (!generated.empty() && generated.back()[1] == span[0])
      generated.back()[1] = span[1];
    else
      generated.push_back(span);
  REQUIRE(rendering.generated.size() == generated.size());
  for (size_t i = 0; i < generated.size(); ++i) {
    CHECK(rendering.generated[i].begin == generated[i][0]);
    CHECK(rendering.generated[i].end == generated[i][1]);
  }
}

}  // namespace

TEST_CASE("built-in templates render as in Hugging Face transformers") {
  for (const auto& [name, renderings] : golden()["named"].items()) {
    CAPTURE(name);
    const std::string path = std::string(kSourceDir) + "/text/chat/templates/" + name + ".jinja";
    for (size_t i = 0; i < renderings.size(); ++i) {
      CAPTURE(i);
      const json& record = golden()["records"][i];
      check_rendering(read_whole_file(path, 1 << 20), record, record["prompt"], renderings[i]);
    }
  }
}

TEST_CASE("published templates render as in Hugging Face transformers") {
  const char* folder = std::getenv("FLATSHARD_TEMPLATES");
  if (folder == nullptr) return test::skip("FLATSHARD_TEMPLATES names no folder of published templates");
  const json hashes = json::parse(
      read_whole_file(std::string(kSourceDir) + "/tests/golden/published_templates.json", 1 << 20));
  size_t compared = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const std::string source = read_whole_file(file.path().string(), 1 << 24);
    const auto found = hashes.find(digest(source));
    if (found == hashes.end()) continue;
    ++compared;
    CAPTURE(file.path().string());
    std::string renderings;
    for (const json& record : golden()["records"]) {
      std::string text;
      const bool refused =
          !test::error_of([&] { text = rendered(source, record, record["prompt"]).text; }).empty();
      renderings += (refused ? "refused" : text) + '\0';
    }
    CHECK(digest(renderings) == (*found)["renderings"].get<std::string>());
  }
  MESSAGE(compared, " templates compared");
  CHECK(compared > 0);
}

TEST_CASE("every construct of templates renders as in Jinja2") {
  const json& record = golden()["records"][golden()["feature_record"].get<size_t>()];
  for (const json& feature : golden()["features"])
    check_rendering(feature["template"], record, false, feature);
}
