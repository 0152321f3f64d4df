#include "train/tools/prepare.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "runtime/check.h"
#include "runtime/whole_file.h"
#include "train/text/corpus.h"
#include "train/text/token_file.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string out;
  std::optional<std::string> eval_out;
  double eval_share = 0.05;
  CorpusOptions corpus;
  std::string split = "none";
  std::string files_from;
  std::vector<std::string> files;
};

std::vector<std::string> outputs(const Options& o) {
  return o.eval_out ? std::vector{o.out, *o.eval_out} : std::vector{o.out};
}

constexpr const char* kDescription =
    "Makes token files, which the trainer reads, out of text: one token for every byte, a vocabulary of "
    "256.\n\n"
    "A file whose name ends in .jsonl holds one JSON object a line; its text field is a document. Any other\n"
    "file is text: one document, or with --split blank-lines those that blank lines separate. Documents are\n"
    "written in the order in which they stand in the files, and the files in the order given. Empty "
    "documents\n"
    "are dropped, and counted.\n\n"
    "With --eval-out, floor(n SHARE) of the first n documents (empty ones do not count) go there, evenly\n"
    "spread: a function of the document's number alone, so the same input is always split the same way.\n";
constexpr const char* kFooter =
    "Nothing is written under its final name before everything succeeded.\n\n"
    "  prepare --out corpus.tok --eval-out eval.tok stories.jsonl\n"
    "  git ls-files '*.md' | prepare --out docs.tok --files-from -\n";

void declare(CLI::App& app, Options& o) {
  app.footer(kFooter);
  app.add_option("--out", o.out, "the token file to write; its folder is made when there is none")
      ->type_name("FILE")
      ->required();
  CLI::Option* eval_out =
      app.add_option("--eval-out", o.eval_out, "a token file for evaluation; --out gets the other documents")
          ->type_name("FILE");
  app.add_option("--eval-share", o.eval_share,
                 "its share of the documents, above 0 and below 1: 0.05 takes every 20th")
      ->type_name("SHARE")
      ->capture_default_str()
      ->needs(eval_out);
  app.add_option("--text-field", o.corpus.text_field, "the field of a .jsonl object that is the document")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--split", o.split, "what ends a document in a text file, besides its end")
      ->check(CLI::IsMember({"none", "blank-lines"}))
      ->capture_default_str();
  app.add_option("--files-from", o.files_from,
                 "a list of more files to read, one a line; - is the standard input")
      ->type_name("LIST");
  app.add_option("FILES", o.files, "files to read; a folder is an error")->type_name("");
}

// A "\n" in a path or an argument must not break the promise of one line.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string counted(int64_t count, const char* noun) { return str(count, ' ', noun, count == 1 ? "" : "s"); }

void append_list(std::istream& list, const std::string& name, std::vector<std::string>& files) {
  int64_t number = 0;
  for (std::string line; std::getline(list, line);) {
    ++number;
    check(!line.empty(), name, ':', number, ": is empty, must be a path");
    files.push_back(line);
  }
  check(!list.bad(), name, ": cannot be read");
}

std::vector<std::string> input_files(const Options& o, std::istream& in) {
  std::vector<std::string> files = o.files;
  if (o.files_from == "-") {
    append_list(in, "standard input", files);
  } else if (!o.files_from.empty()) {
    std::ifstream list(o.files_from);
    check(list.is_open(), "--files-from: cannot open ", o.files_from);
    append_list(list, o.files_from, files);
  }
  check(!files.empty(), "there is nothing to read: name files, or a list of them with --files-from");
  return files;
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code error_a, error_b;  // a pipe has no canonical name, and is no file we could overwrite
  const fs::path path_a = fs::weakly_canonical(fs::absolute(a), error_a);
  const fs::path path_b = fs::weakly_canonical(fs::absolute(b), error_b);
  return !error_a && !error_b && path_a == path_b;
}

void check_outputs(const Options& o) {
  check(o.eval_share > 0 && o.eval_share < 1, "--eval-share is ", o.eval_share,
        ", must be above 0 and below 1");
  for (const std::string& out : outputs(o)) {
    check(!out.empty(), "the name of the file to write is empty");
    std::error_code ignored;
    check(!fs::is_directory(out, ignored), out, ": is a folder, must be a file to write");
  }
  check(!o.eval_out || !same_file(o.out, *o.eval_out), "--out and --eval-out are the same file, ", o.out);
}

// All of them, before hours may be spent on the first.
void check_inputs(const Options& o, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const bool readable = access(file.c_str(), R_OK) == 0;
    check(readable, file, ": cannot open: ", std::strerror(errno));
    check(!fs::is_directory(file), file, ": is a folder; name the files in it, perhaps with --files-from");
    for (const std::string& out : outputs(o))
      check(!same_file(file, out), file, ": is both read and written");
  }
}

void make_folder_of(const std::string& file) {
  const fs::path folder = fs::path(file).parent_path();
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  check(!error, folder.string(), ": cannot make the folder: ", error.message());
}

// One line that is written over and over while it takes long.
class Progress {
 public:
  Progress(std::ostream* out, size_t files) : out_(out), files_(files) {}
  ~Progress() {
    if (shown_) *out_ << "\r\x1b[K" << std::flush;
  }
  void show(size_t file, int64_t documents, int64_t bytes) {
    const auto now = std::chrono::steady_clock::now();
    if (!out_ || now - last_ < std::chrono::milliseconds(500)) return;
    last_ = now;
    shown_ = true;
    *out_ << "\r\x1b[Kfile " << file + 1 << " of " << files_ << ", " << documents << " documents, "
          << bytes / 1000000 << " million tokens" << std::flush;
  }

 private:
  std::ostream* out_;
  size_t files_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

struct Counts {
  int64_t bytes = 0, documents = 0, empty = 0, tokens = 0;  // documents: those that are not empty
};

Counts write_documents(const Options& o, const std::vector<std::string>& files, TokenWriter& train,
                       TokenWriter* eval, Progress& progress) {
  Counts counts;
  for (size_t i = 0; i < files.size(); ++i)
    counts.bytes += read_documents(files[i], o.corpus, [&](std::string_view text) {
      if (text.empty()) {
        ++counts.empty;
        return;
      }
      TokenWriter& writer = eval && is_eval_document(counts.documents, o.eval_share) ? *eval : train;
      writer.add_document(byte_tokens(text));
      ++counts.documents;
      counts.tokens += static_cast<int64_t>(text.size());
      progress.show(i, counts.documents, counts.tokens);
    });
  return counts;
}

void check_split(const Options& o, const Counts& counts, const TokenWriter& train, const TokenWriter* eval) {
  check(counts.documents > 0, "there is no text: ", counted(counts.empty, "document"),
        " read, none with a byte in it");
  if (!eval) return;
  check(counts.documents > 1,
        "there is only one document, which cannot be split into --out and --eval-out: "
        "cut text files with --split blank-lines, give more documents, or leave out --eval-out");
  const auto has_documents = [&](const TokenWriter& writer, const char* option, const char* change) {
    check(writer.document_count() > 0, "with --eval-share ", o.eval_share, " none of the ", counts.documents,
          " documents goes to ", option, ": give a ", change, " share, or leave out --eval-out");
  };
  has_documents(*eval, "--eval-out", "larger");
  has_documents(train, "--out", "smaller");
}

// Both or neither: what can fail for want of space happens before the first gets its name.
void finish(const Options& o, TokenWriter& train, TokenWriter* eval) {
  if (eval) eval->complete();
  train.finish();
  if (!eval) return;
  try {
    eval->finish();
  } catch (...) {
    fs::remove(o.out);
    throw;
  }
}

void report(std::ostream& out, const std::string& path, const TokenWriter& writer) {
  out << path << ": " << counted(writer.document_count(), "document") << ", "
      << counted(writer.size(), "token") << " of a vocabulary of " << kByteVocab << ", "
      << fs::file_size(path) << " bytes\n";
}

void prepare(const Options& o, const PrepareStreams& streams) {
  const std::vector<std::string> files = input_files(o, streams.in);
  check_outputs(o);
  check_inputs(o, files);
  for (const std::string& out : outputs(o)) make_folder_of(out);
  TokenWriter train(o.out, kByteVocab);
  std::optional<TokenWriter> eval;
  if (o.eval_out) eval.emplace(*o.eval_out, kByteVocab);
  TokenWriter* const eval_writer = eval ? &*eval : nullptr;

  Counts counts;
  {
    Progress progress(streams.progress ? &streams.err : nullptr, files.size());
    counts = write_documents(o, files, train, eval_writer, progress);
  }
  check_split(o, counts, train, eval_writer);
  finish(o, train, eval_writer);
  streams.out << "read " << counted(static_cast<int64_t>(files.size()), "file") << ", " << counts.bytes
              << " bytes: " << counted(counts.documents, "document") << "; dropped " << counts.empty
              << " empty\n";
  report(streams.out, o.out, train);
  if (eval) report(streams.out, *o.eval_out, *eval);
}

}  // namespace

int run_prepare(int argc, const char* const* argv, const PrepareStreams& streams) {
  CLI::App app(kDescription, "prepare");
  Options options;
  declare(app, options);
  survive_file_limits();
  try {
    app.parse(argc, argv);
    options.corpus.split = options.split == "none" ? TextSplit::none : TextSplit::blank_lines;
    prepare(options, streams);
    return 0;
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help, streams.out, streams.err);
  } catch (const std::exception& error) {
    streams.err << "prepare: " << one_line(error.what()) << '\n';
    return 1;
  }
}

}  // namespace flatshard
