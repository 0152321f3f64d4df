#include "tools/inference/similarity.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "hub/prompt_images.h"
#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

using Json = nlohmann::json;

struct Prompt {
  size_t record;
  Request request;
  std::vector<int32_t> reference;
};

// The prompts of this rank: every world.size()-th record.
std::vector<Prompt> prompts_of_rank(const TextCodec& codec, const std::vector<PromptRecord>& records,
                                    const SimilarityOptions& options, const World& world) {
  std::vector<Prompt> prompts;
  for (size_t i = static_cast<size_t>(world.rank()); i < records.size();
       i += static_cast<size_t>(world.size())) {
    const PromptRecord& record = records[i];
    check(record.reference.has_value(), record.where,
          ": has no answer to compare with: neither \"completion\" nor a last message of the assistant");
    const TextPrompt prompt = encode_prompt(codec, record);
    Request request{.prompt = prompt.tokens,
                    .most_tokens = options.most_tokens,
                    .sampler = Sampler({.temperature = 0}),
                    .images = images_of(codec.image_input(), prompt.images)};
    check(!request.prompt.empty(), record.where, ": the prompt is empty, must have at least one token");
    prompts.push_back({i, std::move(request), codec.encode(*record.reference)});
  }
  return prompts;
}

// The longest text that the generator reads. An Error names a record that exceeds the model's positions. An
// answer may become longer when its text is encoded again, so each answer is checked, too.
int64_t capacity_for(const std::vector<PromptRecord>& records, const std::vector<Prompt>& prompts,
                     int64_t positions) {
  int64_t longest = 1;
  for (const Prompt& prompt : prompts) {
    const int64_t length = std::ssize(prompt.request.prompt) + prompt.request.most_tokens;
    for (const int64_t tokens : {length, std::ssize(prompt.reference)})
      check(tokens <= positions, records[prompt.record].where, ": needs ", tokens,
            " positions, for prompt and answer or for the reference, but the model has ", positions);
    longest = std::max({longest, length, std::ssize(prompt.reference), 2 * prompt.request.most_tokens});
  }
  return std::min(longest, positions);
}

double score_of(Generator& generator, const std::vector<int32_t>& answer,
                const std::vector<int32_t>& reference) {
  if (answer.empty() || reference.empty()) return answer.empty() && reference.empty() ? 0 : 1;
  return cosine_distance(generator.mean_state(answer), generator.mean_state(reference));
}

std::string quoted_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

// Whether an answer equals its reference, apart from white space around them.
bool is_exact(const std::string& answer, const std::string& reference) {
  const auto trimmed = [](const std::string& text) {
    constexpr char kSpace[] = " \t\r\n";
    const size_t begin = text.find_first_not_of(kSpace), end = text.find_last_not_of(kSpace);
    return begin == text.npos ? "" : text.substr(begin, end - begin + 1);
  };
  return trimmed(answer) == trimmed(reference);
}

std::string excerpt(const std::string& text) {
  constexpr size_t kMostBytes = 80;
  const std::string shown = printable(text);
  if (shown.size() <= kMostBytes) return '"' + shown + '"';
  size_t end = kMostBytes;
  while (end > 0 && (static_cast<unsigned char>(shown[end]) & 0xC0) == 0x80) --end;  // do not cut a character
  return '"' + shown.substr(0, end) + "...\"";
}

std::string significant(double value) {
  std::ostringstream out;
  out << std::setprecision(4) << value;
  return std::move(out).str();
}

}  // namespace

double cosine_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  check(aa > 0 && bb > 0, "a text has hidden states of zero, which have no direction");
  return 1 - ab / std::sqrt(aa * bb);
}

std::vector<ScoredAnswer> score_answers(const ModelSource& source, const TextCodec& codec,
                                        const std::vector<PromptRecord>& records,
                                        const SimilarityOptions& options, World& world) {
  const std::vector<Prompt> prompts = prompts_of_rank(codec, records, options, world);
  Json mine = Json::array();  // rows of [record, answer, score]
  if (!prompts.empty()) {
    std::vector<Request> requests;
    for (const Prompt& prompt : prompts) requests.push_back(prompt.request);
    const int64_t positions = read_model_config(source).max_positions;
    Generator generator(source, {.dtype = options.dtype,
                                 .texts = std::min<int64_t>(options.batch, std::ssize(requests)),
                                 .capacity = capacity_for(records, prompts, positions),
                                 .device = options.device});
    const std::vector<Continuation> continued = continue_prompts(generator, requests, codec.end_tokens());
    for (size_t i = 0; i < prompts.size(); ++i) {
      const std::string answer = codec.decode(continued[i].tokens);
      const double score = score_of(generator, codec.encode(answer), prompts[i].reference);
      mine.push_back(
          {prompts[i].record, answer, score, is_exact(answer, *records[prompts[i].record].reference)});
    }
  }
  std::vector<ScoredAnswer> all(records.size());
  const std::string text = json_text(mine, kOneLine, InvalidUtf8::replaced);
  for (const std::string& part : world.all_gather_texts(text, "answers"))
    for (const Json& row : parse_json<Json>(part)) all[row[0].get<size_t>()] = {row[1], row[2], row[3]};
  return all;
}

double average_score(const std::vector<ScoredAnswer>& answers) {
  double sum = 0;
  for (const ScoredAnswer& a : answers) sum += a.score;
  return sum / static_cast<double>(answers.size());
}

int64_t exact_answers(const std::vector<ScoredAnswer>& answers) {
  return std::count_if(answers.begin(), answers.end(), [](const ScoredAnswer& a) { return a.exact; });
}

std::string describe_differences(const std::vector<PromptRecord>& records,
                                 const std::vector<ScoredAnswer>& answers) {
  constexpr int kMostShown = 5;
  const int64_t exact = exact_answers(answers), all = std::ssize(answers);
  if (exact == all) return "every answer is its reference\n";
  std::string text =
      str(with_commas(exact), " of ", with_commas(all), " answers are their references; others:\n");
  int shown = 0;
  for (size_t i = 0; i < answers.size() && shown < kMostShown; ++i) {
    if (answers[i].exact) continue;
    text += str("  ", records[i].where, ": ", excerpt(answers[i].answer), " instead of ",
                excerpt(*records[i].reference), ", score ", significant(answers[i].score), '\n');
    ++shown;
  }
  return text;
}

std::string similarity_csv(const std::vector<PromptRecord>& records,
                           const std::vector<ScoredAnswer>& answers) {
  std::vector<std::string> labels{"data_id"};
  for (const char* name : {"item_name", "image_name"})
    if (std::any_of(records.begin(), records.end(), [&](const auto& r) { return r.labels.contains(name); }))
      labels.emplace_back(name);
  std::string csv;
  for (const std::string& label : labels) csv += label + ',';
  csv += "user_question,model_generated_answer,ground_truth_answer,semantic_similarity_score,exact_match\n";
  for (size_t i = 0; i < records.size(); ++i) {
    const PromptRecord& record = records[i];
    for (const std::string& label : labels) {
      const auto found = record.labels.find(label);
      csv += quoted_field(found != record.labels.end() ? found->second
                          : label == "data_id"         ? std::to_string(i)
                                                       : "") +
             ',';
    }
    csv += quoted_field(record.question) + ',' + quoted_field(answers[i].answer) + ',' +
           quoted_field(record.reference.value_or("")) + ',' + fixed(answers[i].score, 6) + ',' +
           (answers[i].exact ? '1' : '0') + '\n';
  }
  return csv + "average_semantic_similarity_score" + std::string(labels.size() + 3, ',') +
         fixed(average_score(answers), 6) + ',' +
         fixed(static_cast<double>(exact_answers(answers)) / static_cast<double>(answers.size()), 6) + '\n';
}

}  // namespace flatshard
