#include "tests/fuzz/text_targets.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <tuple>
#include <vector>

#include "runtime/utf8.h"
#include "tests/byte_tokenizer.h"
#include "tests/fuzz/promise.h"
#include "text/chat/chat_sample.h"
#include "text/chat/prompt_file.h"
#include "text/data/data.h"
#include "text/data/dataset.h"
#include "text/data/token_column.h"
#include "text/images/image_file.h"
#include "text/images/image_rules.h"

namespace flatshard::test {
namespace {

using Bytes = std::span<const std::byte>;

constexpr const char* kFile = "file";
constexpr const char* kTokenizer = "fuzz_tokenizer";  // a token is a byte, or a special token
constexpr const char* kLines = "fuzz.jsonl";
constexpr const char* kTokens = "fuzz.tok";
constexpr const char* kOtherTokens = "fuzz_other.tok";
constexpr const char* kColumn = "fuzz.column";

// Removes the files of a try, because some file systems wait for the disk when a file is replaced.
struct FilesOfTry {
  ~FilesOfTry() {
    std::error_code none;
    for (const auto& path : std::vector<std::string>{kLines, kTokens, advantages_path(kTokens),
                                                     logprobs_path(kTokens), kOtherTokens, kColumn})
      std::filesystem::remove(path, none);
  }
};

void write(const char* path, Bytes bytes) { std::ofstream(path, std::ios::binary) << text_of(bytes); }

// What is before the first zero byte, and what is behind it.
std::pair<std::string_view, std::string_view> parts_of(Bytes bytes) {
  const std::string_view all = text_of(bytes);
  const size_t end = std::min(all.find('\0'), all.size());
  return {all.substr(0, end), all.substr(std::min(end + 1, all.size()))};
}

// The character, which templates cannot produce, appears only in ranges that the rendering marks as data.
void check_sources(const Rendering& rendering, const std::string& character) {
  size_t begin = 0;
  const auto outside = [&](size_t end) {
    return rendering.text.substr(begin, end - begin).find(character) == std::string::npos;
  };
  for (const TextSpan& span : rendering.data) {
    require(span.begin >= begin && span.begin < span.end && span.end <= rendering.text.size(),
            "the data of a rendering is out of order");
    require(outside(span.begin), "a rendering calls data a part of the template");
    begin = span.end;
  }
  require(outside(rendering.text.size()), "a rendering calls data a part of the template");
}

void check_sample(const std::vector<int32_t>& tokens, const std::vector<uint8_t>& trained, int64_t vocab) {
  for (const int32_t token : tokens)
    require(token >= 0 && token < vocab, "a token is outside the vocabulary");
  require(trained.empty() || trained.size() == tokens.size(), "tokens and mask differ in length");
}

// The samples of a token file, as tokens and mask.
struct Documents {
  explicit Documents(const TokenFile& file)
      : tokens(static_cast<size_t>(file.size())), trained(tokens.size()) {
    file.read(0, tokens);
    file.read_mask(0, trained);
    int64_t end = 0;
    file.each_document([&](int64_t begin, int64_t length) {
      require(begin == end && length >= 0, "documents overlap or leave a hole");
      end += length;
      lengths.push_back(length);
    });
    require(end == file.size() && std::ssize(lengths) == file.document_count(), "a document is lost");
    require(std::ssize(file.starts_in(0, end + 1)) == file.document_count() + 1, "a start is lost");
    check_sample(tokens, trained, file.vocab());
  }
  bool operator==(const Documents&) const = default;

  std::vector<int32_t> tokens;
  std::vector<uint8_t> trained;
  std::vector<int64_t> lengths;
};

// Space for the images of a lane; none if there are none, or if damaged rules make them huge.
struct ImageSpace {
  ImageSpace(const TokenFile& file, const DataOptions& options) {
    constexpr int64_t kMostValues = 1 << 20;
    if (!file.has_images()) return;
    const ImageSizes most = most_images(file.image_input().rules, options);
    if (most.patches > kMostValues / most.width) return;
    patches.resize(static_cast<size_t>(most.patches * most.width));
    indices.resize(static_cast<size_t>(most.patches + most.frames + 1 + most.rows));
    int32_t* const i = indices.data();
    batch = {.patches = tensor_of(patches.data(), {most.patches, most.width}),
             .patch_positions = tensor_of(i, {1, most.patches}),
             .frames = tensor_of(i + most.patches, {most.frames + 1}),
             .rows = tensor_of(i + most.patches + most.frames + 1, {most.rows})};
  }
  std::vector<float> patches;
  std::vector<int32_t> indices;
  ImageBatch batch{};
};

// Checks the batches of the first steps.
void check_batches(const Data& data, int64_t seq_len, int64_t rows, int64_t vocab, const ImageBatch& images) {
  constexpr int64_t kSteps = 4;
  const int64_t n = rows * seq_len;
  std::vector<int32_t> tokens(static_cast<size_t>(n)), positions(tokens), targets(tokens);
  std::vector<int32_t> starts(static_cast<size_t>(n + 1));
  const Batch space{tensor_of(tokens.data(), {n}), tensor_of(positions.data(), {n}),
                    tensor_of(targets.data(), {n}), tensor_of(starts.data(), {n + 1}), images};
  for (int64_t step = 0; step < std::min(kSteps, 2 * data.steps_per_epoch()); ++step) {
    int64_t count = 0, padding = 0;
    for (int64_t lane = 0; lane < data.lanes_per_step(); ++lane) {
      const Batch batch = data.read(step, lane, space);
      const std::span<const int32_t> used(starts.data(), static_cast<size_t>(batch.boundaries.size()));
      require(used.front() == 0 && used.back() == n, "the boundaries do not cover the batch");
      require(std::adjacent_find(used.begin(), used.end(), std::greater_equal()) == used.end(),
              "the boundaries do not ascend");
      int32_t position = 0;
      for (size_t t = 0, next = 0; t < tokens.size(); ++t, ++position) {
        if (used[next] == static_cast<int32_t>(t)) {
          position = 0;
          ++next;
        }
        require(positions[t] == position, "a position does not count from its boundary");
        require(tokens[t] >= 0 && tokens[t] < vocab, "a token of a batch is outside the vocabulary");
        require(targets[t] == kIgnoredTarget || targets[t] == kPaddingTarget ||
                    (t + 1 < tokens.size() && targets[t] == tokens[t + 1]) ||
                    (t + 1) % static_cast<size_t>(seq_len) == 0,
                "a target is not the next token");
        count += targets[t] >= 0;
        padding += targets[t] == kPaddingTarget;
      }
    }
    require(count == data.target_count(step), "the targets of a step are counted wrong");
    require(n * data.lanes_per_step() - padding == data.token_count(step),
            "the tokens of a step are counted wrong");
  }
}

// A file has a batch in each way of packing, or an Error says why not.
void check_packing(const TokenFile& file) {
  constexpr int64_t kSeqLen = 5;
  for (const auto& [packing, truncation, padding, rows, shuffle] :
       {std::tuple{Packing::wrapped, Truncation::keep_start, Padding::right, 1, true},
        {Packing::documents, Truncation::keep_start, Padding::right, 2, false},
        {Packing::best_fit, Truncation::keep_end, Padding::left, 2, true},
        {Packing::best_fit_split, Truncation::keep_start, Padding::right, 2, false},
        {Packing::none, Truncation::keep_start, Padding::left, 1, true}})
    refusal([&] {
      const DataOptions options{.seq_len = kSeqLen,
                                .lane_sequences = rows,
                                .total_sequences = 2,
                                .packing = {packing, truncation, padding},
                                .shuffle = shuffle};
      const Data data(file, options);
      check_batches(data, kSeqLen, rows, std::max<int64_t>(1, file.vocab()), ImageSpace(file, options).batch);
    });
}

// Several ways to make samples of conversations: by the generation blocks of a template, by the text of the
// assistant, and by comparing the beginnings of a conversation.
std::vector<std::unique_ptr<const SampleEncoder>> make_encoders() {
  write_byte_tokenizer(kTokenizer, true);
  const auto file = [](const char* path, std::string_view text) {
    write(path, std::as_bytes(std::span(text)));
    return path;
  };
  std::vector<std::unique_ptr<const SampleEncoder>> encoders;
  for (const auto& [chat_template, train_on] :
       {std::pair{"chatml", TrainOn::assistant},
        {"llama2", TrainOn::last},
        {file("fuzz_plain.jinja",
              "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}{{ eos_token }}{% endfor %}"
              "{% if add_generation_prompt %}<|assistant|>{% endif %}"),
         TrainOn::assistant},
        {file("fuzz_hidden.jinja",
              "{% for m in messages %}<|{{ m.role }}|>{{ m.content | length }}{{ eos_token }}{% endfor %}"
              "{% if add_generation_prompt %}<|assistant|>{% endif %}{{ tools | default(1) }}"),
         TrainOn::last}})
    encoders.push_back(std::make_unique<SampleEncoder>(
        EncoderOptions{.tokenizer = kTokenizer, .chat_template = chat_template, .train_on = train_on}));
  return encoders;
}

// How many records there are. Each is a sample, or is refused with its place. The encoders take turns.
int64_t check_records(const std::vector<std::unique_ptr<const SampleEncoder>>& encoders) {
  int64_t count = 0;
  read_records(kLines, TextSplit::none, [&](const Record& record) {
    const SampleEncoder& encoder = *encoders[static_cast<size_t>(count) % encoders.size()];
    ++count;
    const bool is_element = record.where.ends_with(str(" (record ", count, ')'));  // of an array
    require(is_element || record.where == str(kLines, ':', count), "a record has the wrong place");
    const std::string reason = refusal([&] {
      const Sample sample = encoder.encode(record);
      check_sample(sample.tokens, sample.trained, encoder.vocab());
    });
    require(reason.empty() || reason.starts_with(record.where + ": "),
            "a refusal does not begin with the record's place: " + reason);
  });
  return count;
}

// The same lines as prompts to answer.
void check_prompts() {
  const std::string reason = refusal([] {
    for (const PromptRecord& record : read_prompt_file(kLines)) {
      require(!record.conversation || !record.conversation->messages.empty(), "a prompt has no messages");
      with_answer(record, "answer");
    }
  });
  require(reason.empty() || reason.starts_with(kLines), "a refusal does not begin with the file: " + reason);
}

// One encoder for each kind of records that compare answers.
std::vector<std::unique_ptr<const SampleEncoder>> make_answer_encoders() {
  write_byte_tokenizer(kTokenizer, true);
  std::vector<std::unique_ptr<const SampleEncoder>> encoders;
  for (const RecordKind kind : {RecordKind::pairs, RecordKind::labels, RecordKind::rollouts})
    encoders.push_back(std::make_unique<SampleEncoder>(
        EncoderOptions{.tokenizer = kTokenizer, .chat_template = "chatml", .records = kind}));
  return encoders;
}

// A record has the documents of its kind and a value for each trained token, or is refused with its place.
void check_answer(const SampleEncoder& encoder, const Record& record, const Record& another) {
  const std::string reason = refusal([&] {
    const RecordDocuments made = encode_documents(encoder, record, another);
    require(std::ssize(made.documents) == documents_per_record(encoder.records()), "a document is lost");
    for (const Sample& sample : made.documents) check_sample(sample.tokens, sample.trained, encoder.vocab());
    for (const auto& values : {made.values.logprobs, made.values.advantages})
      require(values.empty() || std::ssize(values) == trained_in(made.documents.front()),
              "trained tokens and values differ in number");
  });
  const auto begins = [&](const Record& with) { return reason.starts_with(with.where); };
  require(reason.empty() || begins(record) || (encoder.records() == RecordKind::labels && begins(another)),
          "a refusal does not begin with the record's place: " + reason);
}

// Trained tokens have finite values, others 0.
void check_column(const TokenColumn& column, const Documents& documents) {
  std::vector<float> values(documents.tokens.size());
  column.read(0, values);
  for (size_t i = 0; i < values.size(); ++i)
    require(documents.trained[i] ? std::isfinite(values[i]) : values[i] == 0,
            "a value of a token is not that of its answer");
}

// What is written is read back. "" if all records are of the encoder's kind, or why the first is not.
std::string check_answer_file(const SampleEncoder& encoder, int64_t records) {
  TokenWriter writer(kTokens, encoder.vocab());
  const DatasetCounts counts = write_dataset({{kLines}}, {.skip_bad = true}, encoder, writer, nullptr);
  require(counts.samples + counts.empty + counts.untrained + counts.bad == records,
          "a record is not counted");
  writer.finish();
  const TokenFile file(kTokens);
  const Documents documents(file);
  require(file.document_count() == counts.samples * documents_per_record(encoder.records()),
          "a document is lost");
  if (encoder.records() != RecordKind::pairs && counts.samples > 0) {
    check_column(*advantages_of(file), documents);
    if (const auto logprobs = logprobs_of(file)) check_column(*logprobs, documents);
  }
  return counts.first_bad;
}

}  // namespace

std::string try_chat_template(Bytes bytes) {
  constexpr char kCharacter[] = "\xee\x80\x80";  // U+E000, for private use
  const auto [source, json] = parts_of(bytes);
  const bool can_make_it_up = source.find(kCharacter) != source.npos || source.find('\\') != source.npos;
  const std::string text(source);
  ChatRecord record;
  record.conversation.add("user", std::string("a") + kCharacter + " b\n\n" + kCharacter + "'\"<C> ");
  record.conversation.add("assistant", kCharacter);
  const JinjaSettings settings{.date = "2024-02-29", .limits = {.steps = 100'000, .depth = 500}};
  return refusal([&, record_text = json] {
    const ChatTemplate chat(text, kFile, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    if (!record_text.empty()) record = parse_chat_record(record_text, kFile);
    if (record.conversation.messages.empty()) return;  // a prompt that is formatted already
    const Rendering rendering = chat.render(record.conversation, {.settings = settings});
    if (!can_make_it_up) check_sources(rendering, kCharacter);
    constexpr size_t kMostBytes = 1 << 16;  // under sanitizers, to encode more takes seconds
    if (rendering.text.size() > kMostBytes) return;
    static const Tokenizer tokenizer = [] {
      write_byte_tokenizer(kTokenizer, true);
      return Tokenizer(kTokenizer);
    }();
    refusal([&] {
      const ChatEncoder encoder(tokenizer, chat, {.settings = settings});
      const ChatSample sample = encoder.sample(record, kFile);
      check_sample(sample.ids, sample.mask, tokenizer.vocab());
    });
  });
}

std::string try_tokenizer(Bytes bytes) {
  const auto [json, text] = parts_of(bytes);
  return refusal([json = json, text = text] {
    const Tokenizer tokenizer = Tokenizer::from_json(json, kFile);
    const Encoding encoding = tokenizer.encode(text);
    require(encoding.begins.size() == encoding.ids.size(), "tokens and begins differ in number");
    StreamDecoder decoder(tokenizer);
    std::string decoded;
    uint32_t before = 0;
    for (size_t i = 0; i < encoding.ids.size(); ++i) {
      require(encoding.ids[i] >= 0 && encoding.ids[i] < tokenizer.vocab(), "an id is outside the vocabulary");
      require(encoding.begins[i] >= before && encoding.begins[i] <= text.size(), "a begin is out of order");
      before = encoding.begins[i];
      const std::string piece = decoder.take(encoding.ids[i]);
      require(valid_utf8_prefix(piece) == piece.size(),
              "a piece of decoded text begins or ends inside of a character");
      decoded += piece;
    }
    require(decoded + decoder.rest() == tokenizer.decode(encoding.ids), "text decoded in pieces differs");
    for (const size_t end : {text.size() / 2, text.size()}) {
      const std::vector<TextRange> plain{{text.size() / 4, end}};
      tokenizer.encode(text, false, plain);
    }
    require(tokenizer.encode(text).ids == encoding.ids, "a text has two encodings");
  });
}

std::string try_dataset(Bytes bytes) {
  static const auto encoders = make_encoders();
  const FilesOfTry files;
  write(kLines, bytes);
  const std::string damage = refusal([] { read_records(kLines, TextSplit::none, [](const Record&) {}); });
  if (!damage.empty()) return damage;  // an array that is cut off, or begins like another kind of file
  const int64_t records = check_records(encoders);
  check_prompts();
  const SampleEncoder& encoder = *encoders.front();
  TokenWriter train(kTokens, encoder.vocab()), eval(kOtherTokens, encoder.vocab());
  const DatasetOptions options{.skip_bad = true, .eval_share = 0.25};
  const DatasetCounts counts = write_dataset({{kLines, 1.5}}, options, encoder, train, &eval);
  require(counts.samples + counts.empty + counts.untrained + counts.bad == records,
          "a record is not counted");
  require(counts.bytes == std::ssize(bytes), "bytes are counted wrong");
  int64_t tokens = 0;
  for (TokenWriter* writer : {&train, &eval}) {
    writer->finish();
    const TokenFile file(writer == &train ? kTokens : kOtherTokens);
    const Documents documents(file);
    require(file.document_count() == writer->document_count(), "a sample is lost");
    require(std::count(documents.trained.begin(), documents.trained.end(), 1) == writer->trained(),
            "the mask that is read is another one");
    tokens += file.size();
    if (file.size() > 1) check_packing(file);
  }
  require(counts.tokens == tokens, "tokens are counted wrong");
  return counts.first_bad;
}

std::string try_answers(Bytes bytes) {
  static const auto encoders = make_answer_encoders();
  const FilesOfTry files;
  write(kLines, bytes);
  std::vector<Record> records;
  const std::string damage = refusal([&] {
    read_records(kLines, TextSplit::none, [&](const Record& record) { records.push_back(record); });
  });
  if (!damage.empty()) return damage;
  std::string reasons;
  bool is_of_a_kind = false;
  for (const auto& encoder : encoders) {
    for (size_t i = 0; i < records.size(); ++i)
      check_answer(*encoder, records[i], records[(i + records.size() - 1) % records.size()]);
    const std::string reason = check_answer_file(*encoder, std::ssize(records));
    is_of_a_kind |= reason.empty();
    reasons += reason + '\n';
  }
  return is_of_a_kind ? "" : reasons;
}

std::string try_token_column(Bytes bytes) {
  const FilesOfTry files;
  write(kColumn, bytes);
  return refusal([&] {
    std::vector<float> values(3);
    TokenColumn(kColumn, std::ssize(values), "fuzz").read(0, values);
    const Bytes read = std::as_bytes(std::span(values));
    require(std::ranges::equal(read, bytes.last(read.size())), "the values are not the end of the file");
  });
}

std::string try_token_file(Bytes bytes) {
  const FilesOfTry files;
  write(kTokens, bytes);
  return refusal([&] {
    require(is_token_file(kTokens) || !refusal([] { TokenFile file(kTokens); }).empty(),
            "a token file does not begin like one");
    const TokenFile file(kTokens);
    why_stale(file.manifest(), "");
    check_packing(file);
    const Documents documents(file);
    TokenWriter writer(kOtherTokens, file.vocab());
    size_t begin = 0;
    for (const int64_t length : documents.lengths) {
      const size_t n = static_cast<size_t>(length);
      writer.add_document(std::span(documents.tokens).subspan(begin, n),
                          std::span(documents.trained).subspan(begin, n));
      begin += n;
    }
    writer.set_manifest(file.manifest());
    writer.finish();
    const TokenFile other(kOtherTokens);
    require(
        Documents(other) == documents && other.manifest() == file.manifest() && other.vocab() == file.vocab(),
        "a token file that was written is read as another one");
  });
}

std::string try_image(Bytes bytes) {
  constexpr int64_t kMostPixels = 1 << 18;
  Image image;
  const std::string reason = refusal([&] { image = decoded(bytes, Transparency::ignored, kMostPixels); });
  if (!reason.empty()) return reason;
  require(std::ssize(image.rgb) == 3 * image.width * image.height, "pixels are lost");
  const ImageRules rules{.longest_edge = 56, .shortest_edge = 28, .splits = false};
  const ImageLayout layout = layout_of(rules, {image.width, image.height});
  const size_t values = 3 * 14 * 14;
  std::vector<float> rows(static_cast<size_t>(layout.patches) * values, 2);
  std::vector<int32_t> positions(static_cast<size_t>(layout.patches), -1);
  write_patches(rules, layout, image, rows.data(), positions.data());
  require(std::all_of(rows.begin(), rows.end(), [](float v) { return v >= -1 && v <= 1; }),
          "a value of a patch is out of bounds");
  require(std::all_of(positions.begin(), positions.end(), [](int32_t p) { return p >= 0 && p < 70 * 70; }),
          "a position is out of bounds");
  return "";
}

}  // namespace flatshard::test
