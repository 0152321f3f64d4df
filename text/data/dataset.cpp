#include "text/data/dataset.h"

#include <filesystem>
#include <unistd.h>

#include "runtime/check.h"
#include "runtime/fingerprint.h"
#include "runtime/json.h"
#include "runtime/text.h"
#include "text/data/kept_files.h"

namespace flatshard {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

Json parse(const std::string& manifest) {
  const Json parsed = parse_json_or_discard<Json>(manifest);
  return parsed.is_object() ? parsed : Json::object();
}

// Returns "" unless the object has this member and it is text: manifests are untrusted.
std::string text_of(const Json& object, const char* name) {
  if (!object.is_object()) return "";
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string manifest_with(std::string (*print)(const std::vector<std::string>&),
                          const std::vector<DatasetFile>& files, const DatasetOptions& options,
                          const SampleEncoder& encoder) {
  Json manifest = parse_json<Json>("{" + encoder.identity() + "}");
  manifest["split"] = options.split == TextSplit::none ? "none" : "blank-lines";
  manifest["eval_share"] = options.eval_share;
  if (!options.columns.empty()) manifest["columns"] = options.columns;
  if (options.most_tokens > 0) manifest["max_tokens"] = options.most_tokens;
  manifest["inputs"] = Json::array();
  for (const DatasetFile& file : files) {
    Json input{{"path", fs::absolute(file.path).lexically_normal().string()}, {"weight", file.weight}};
    if (fs::is_regular_file(file.path)) input["content"] = print({file.path});  // a pipe is read once
    manifest["inputs"].push_back(input);
  }
  return json_text(manifest, kOneLine, InvalidUtf8::replaced);
}

}  // namespace

std::string make_manifest(const std::vector<DatasetFile>& files, const DatasetOptions& options,
                          const SampleEncoder& encoder) {
  return manifest_with(fingerprint, files, options, encoder);
}

std::vector<std::string> inputs_of_manifest(const std::string& manifest) {
  std::vector<std::string> paths;
  const Json made = parse(manifest), inputs = made.value("inputs", Json::array());
  for (const Json& input : inputs)
    if (!text_of(input, "content").empty()) paths.push_back(text_of(input, "path"));
  return paths;
}

std::string why_stale(const std::string& manifest, const std::string& tokenizer) {
  const Json made = parse(manifest);
  const std::string used = tokenizer_of_manifest(manifest);
  if (!tokenizer.empty() && !used.empty() && used != tokenizer)
    return str("was made with the tokenizer ", used, ", but the model's is ", tokenizer);
  for (const Json& input : made.value("inputs", Json::array())) {
    const std::string path = text_of(input, "path"), content = text_of(input, "content");
    std::error_code none;
    if (content.empty() || access(path.c_str(), R_OK) != 0 || !fs::is_regular_file(path, none)) continue;
    if (const std::string now = fingerprint_like(content, {path}); now != content)
      return str("was made from ", path, " when that had ", content, "; now it has ", now);
  }
  return "";
}

std::string tokenizer_of_manifest(const std::string& manifest) {
  return text_of(parse(manifest), "tokenizer");
}

std::string date_of_manifest(const std::string& manifest) { return text_of(parse(manifest), "date"); }

RecordKind records_of_manifest(const std::string& manifest) {
  return named<RecordKind>(text_of(parse(manifest), "records")).value_or(RecordKind::samples);
}

std::string dropped(const DatasetCounts& counts) {
  std::string text = str(counts.empty, " empty");
  if (counts.untrained > 0) text += str(", ", counts.untrained, " without trained tokens");
  if (counts.bad > 0) text += str(", ", counts.bad, " bad");
  return text;
}

std::string token_file_of(const std::string& path, const DatasetOptions& options) {
  return kept_path(path, make_manifest({{path}}, options, SampleEncoder(options.encoder)), ".tok");
}

std::string earlier_token_file_of(const std::string& path, const DatasetOptions& options) {
  const std::string manifest =
      manifest_with(sampled_fingerprint, {{path}}, options, SampleEncoder(options.encoder));
  const fs::path name = fs::path(kept_path(path, manifest, ".tok")).filename();
  return (fs::path(path).parent_path() / name).string();
}

DatasetCounts make_token_file(const std::string& path, const DatasetOptions& options,
                              const std::string& tokens, const DatasetProgress& progress) {
  const SampleEncoder encoder(options.encoder);
  make_kept_folder(tokens, str("copy ", path,
                               " to a folder that can be written, or make its tokens with "
                               "prepare"));
  TokenWriter writer(tokens, encoder.vocab());
  writer.set_manifest(make_manifest({{path}}, options, encoder));
  const DatasetCounts counts = write_dataset({{path}}, options, encoder, writer, nullptr, progress);
  check(counts.samples > 0, path, ": has no sample to train on; dropped ", dropped(counts));
  writer.finish();
  return counts;
}

}  // namespace flatshard
