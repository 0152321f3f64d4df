#include "train/report/sample_texts.h"

#include <filesystem>
#include <span>

#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/log.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/report/html.h"

namespace flatshard {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostBytes = int64_t{1} << 30;
constexpr size_t kMostShown = 50;  // most evaluations on a page

// Bytes that are not UTF-8, such as those of a model of bytes, become U+FFFD.
std::string lines_of(const std::vector<SampleText>& samples) {
  std::string lines;
  for (const SampleText& s : samples)
    lines += json_text(Json{{"step", s.step}, {"prompt", s.prompt}, {"text", s.text}}, kOneLine,
                       InvalidUtf8::replaced) +
             '\n';
  return lines;
}

SampleText parse_sample(const std::string& line, const std::string& where) {
  const Json json = checked_json<Json>(line, where);
  const auto has_text = [&](const char* name) { return json.contains(name) && json[name].is_string(); };
  check(json.is_object() && json.contains("step") && json["step"].is_number_integer() && has_text("prompt") &&
            has_text("text"),
        where, ": is not a sample, which has \"step\", \"prompt\" and \"text\"; the file is damaged");
  return {json["step"], json["prompt"], json["text"]};
}

std::string table_of(std::span<const SampleText> samples) {
  std::string rows;
  for (const SampleText& s : samples)
    rows += str("<tr><td>", escaped(s.prompt), "</td><td>", escaped(s.text), "</td></tr>\n");
  return str(
      "<table class=\"samples\"><thead><tr><th>prompt</th><th>the model's text</th></tr></thead>\n<tbody>\n",
      rows, "</tbody></table>\n");
}

}  // namespace

SamplesFile::SamplesFile(const std::string& path, const std::vector<SampleText>& lines)
    : file_(path, lines_of(lines)) {}

void SamplesFile::write(const std::vector<SampleText>& samples) { file_.append(lines_of(samples)); }

std::vector<SampleText> read_samples(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  const std::string text = read_whole_file(path, kMostBytes);
  std::vector<SampleText> samples;
  int64_t number = 0;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
    samples.push_back(parse_sample(text.substr(begin, end - begin), str(path, ':', ++number)));
  return samples;
}

std::vector<SampleText> samples_before(int64_t step, const std::string& path) {
  std::vector<SampleText> samples;
  warn_on_error([&] { samples = read_samples(path); });
  std::erase_if(samples, [&](const SampleText& s) { return s.step > step; });
  return samples;
}

std::string samples_html(const std::vector<SampleText>& samples) {
  std::string html;
  size_t shown = 0;
  std::span<const SampleText> rest(samples);
  for (; !rest.empty() && shown < kMostShown; ++shown) {
    const int64_t step = rest.back().step;
    size_t first = rest.size();
    while (first > 0 && rest[first - 1].step == step) --first;
    html += str("<details", shown == 0 ? " open" : "", ">\n<summary>Samples ",
                step == 0 ? "before training" : "of step " + with_commas(step), "</summary>\n",
                table_of(rest.subspan(first)), "</details>\n");
    rest = rest.first(first);
  }
  if (!rest.empty()) html += "<p class=\"note\">Earlier samples are in samples.jsonl.</p>\n";
  return html.empty() ? "" : "<h2>Samples</h2>\n" + html;
}

}  // namespace flatshard
