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
#include <utility>

#include <CLI/CLI.hpp>
#include <climits>

#include "runtime/check.h"
#include "runtime/program_end.h"
#include "runtime/reason.h"
#include "runtime/standard_streams.h"
#include "runtime/text.h"
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
  std::optional<std::string> files_from;
  bool null = false;  // names there end with a zero byte
  std::vector<std::string> files;
};

std::vector<std::string> outputs(const Options& o) {
  return o.eval_out ? std::vector{o.out, *o.eval_out} : std::vector{o.out};
}

constexpr const char* kDescription =
    "Converts text to token files for train: one token per byte, a vocabulary of 256.\n\n"
    "A .jsonl file has one JSON object per line, whose text field is a document. Any other file is plain\n"
    "text: one document, or several separated by blank lines with --split blank-lines. Files and documents\n"
    "keep their order. Empty documents are dropped and counted.\n\n"
    "With --eval-out, floor(n SHARE) of the first n non-empty documents go there, evenly spaced. The split\n"
    "depends on the document's index alone, so the same input is always split the same way.\n";
constexpr const char* kFooter =
    "Output files appear under their names only after everything has succeeded.\n\n"
    "  prepare --out corpus.tok --eval-out eval.tok stories.jsonl\n"
    "  git ls-files '*.md' | prepare --out docs.tok --files-from -\n"
    "  find docs -name '*.md' -print0 | prepare --out docs.tok --files-from - -0\n";

void declare(CLI::App& app, Options& o) {
  app.footer(kFooter);
  app.add_option("--out", o.out, "token file to write; its folder is created if missing")
      ->type_name("FILE")
      ->required();
  CLI::Option* eval_out =
      app.add_option("--eval-out", o.eval_out, "token file for evaluation; --out gets the other documents")
          ->type_name("FILE");
  app.add_option("--eval-share", o.eval_share,
                 "share of documents for --eval-out, above 0 and below 1; 0.05 takes every 20th")
      ->type_name("SHARE")
      ->capture_default_str()
      ->needs(eval_out);
  app.add_option("--text-field", o.corpus.text_field, "field of a .jsonl object that holds the document")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--split", o.split, "document separator in text files")
      ->check(CLI::IsMember({"none", "blank-lines"}))
      ->capture_default_str();
  CLI::Option* files_from =
      app.add_option("--files-from", o.files_from,
                     "file that lists more files to read, one per line; -: standard input")
          ->type_name("LIST");
  app.add_flag("-0,--null", o.null,
               "names in LIST end with a zero byte instead of a line break, as from find -print0")
      ->needs(files_from);
  app.add_option("FILES", o.files, "files to read, not folders")->type_name("");
}

std::string counted(int64_t count, const char* noun) { return str(count, ' ', noun, count == 1 ? "" : "s"); }

void append_list(std::istream& list, const std::string& name, char end, std::vector<std::string>& files) {
  int64_t number = 1;
  std::string file;
  const auto add = [&] {
    check(!file.empty(), name, ':', number, ": is empty, must be a path");
    files.push_back(std::exchange(file, {}));
    ++number;
  };
  for (int c; (c = list.get()) != std::istream::traits_type::eof();) {
    if (c == end) {
      add();
      continue;
    }
    check(c != 0, name, ':', number, ": contains a zero byte; if zero bytes end the names, use -0 (--null)");
    file += static_cast<char>(c);
    check(file.size() < PATH_MAX, name, ':', number, ": is longer than ", PATH_MAX - 1,
          " bytes, the maximum of a path");
  }
  check(!list.bad(), name, ": cannot be read");
  if (!file.empty()) add();
}

std::vector<std::string> input_files(const Options& o, std::istream& in) {
  std::vector<std::string> files = o.files;
  const char end = o.null ? '\0' : '\n';
  if (o.files_from == "-") {
    append_list(in, "standard input", end, files);
  } else if (o.files_from) {
    std::ifstream list(*o.files_from);
    check(list.is_open(), "--files-from \"", *o.files_from, "\": cannot open: ", std::strerror(errno));
    append_list(list, *o.files_from, end, files);
  }
  check(!files.empty(), "no input files: name files, or a list of them with --files-from");
  return files;
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code error_a, error_b;  // a pipe has no canonical name and cannot be overwritten
  const fs::path path_a = fs::weakly_canonical(fs::absolute(a), error_a);
  const fs::path path_b = fs::weakly_canonical(fs::absolute(b), error_b);
  return !error_a && !error_b && path_a == path_b;
}

void check_outputs(const Options& o) {
  check(o.eval_share > 0 && o.eval_share < 1, "--eval-share is ", o.eval_share,
        ", must be above 0 and below 1");
  for (const std::string& out : outputs(o)) file_to_write(out);
  check(!o.eval_out || !same_file(o.out, *o.eval_out), "--out and --eval-out are the same file, ", o.out);
}

// All inputs are checked up front: reading the first may take hours.
void check_inputs(const Options& o, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const bool readable = access(file.c_str(), R_OK) == 0;
    check(readable, file, ": cannot open: ", std::strerror(errno));
    const fs::file_status status = fs::status(file);
    check(!fs::is_directory(status), file, ": is a folder; name the files in it, perhaps with --files-from");
    check(fs::is_regular_file(status) || fs::is_fifo(status), file,
          ": is a device or a socket, must be a file or a pipe");
    for (const std::string& out : outputs(o))
      check(!same_file(file, out), file, ": is both read and written");
  }
  const std::string list = o.files_from == "-" ? "/dev/stdin" : o.files_from.value_or("");
  for (const std::string& out : outputs(o))
    check(list.empty() || !same_file(list, out), out, ": is both read as --files-from and written");
}

void make_folder_of(const std::string& file) {
  const fs::path folder = fs::path(file).parent_path();
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  check(!error, folder.string(), ": cannot create the folder: ", error.message());
}

// A progress line that is rewritten in place.
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
  int64_t bytes = 0, documents = 0, empty = 0, tokens = 0;  // documents excludes empty ones
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
  check(counts.documents > 0, "the input has no text; ", counted(counts.empty, "empty document"), " read");
  if (!eval) return;
  check(counts.documents > 1,
        "one document cannot be split between --out and --eval-out; "
        "split text files with --split blank-lines, add documents, or omit --eval-out");
  const auto has_documents = [&](const TokenWriter& writer, const char* option, const char* change) {
    check(writer.document_count() > 0, "with --eval-share ", o.eval_share, " none of the ", counts.documents,
          " documents goes to ", option, "; use a ", change, " share, or omit --eval-out");
  };
  has_documents(*eval, "--eval-out", "larger");
  has_documents(train, "--out", "smaller");
}

// Everything that needs disk space happens before the first file gets its final name.
void finish(TokenWriter& train, TokenWriter* eval) {
  train.complete();
  if (eval) eval->finish();
  train.finish();
}

void report(std::ostream& out, const std::string& path, const TokenWriter& writer) {
  out << path << ": " << counted(writer.document_count(), "document") << ", "
      << counted(writer.size(), "token") << ", vocabulary " << kByteVocab << ", " << writer.file_bytes()
      << " bytes\n";
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
  finish(train, eval_writer);
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
  reserve_standard_streams();
  survive_file_limits();
  try {
    app.parse(argc, argv);
    options.corpus.split = options.split == "none" ? TextSplit::none : TextSplit::blank_lines;
    prepare(options, streams);
    return end_program("prepare", 0, streams.out, streams.err);
  } catch (const CLI::CallForHelp& help) {
    return end_program("prepare", app.exit(help, streams.out, streams.err), streams.out, streams.err);
  } catch (const std::exception& error) {
    streams.err << "prepare: " << printable(reason_of(error)) << '\n';
    return 1;
  }
}

}  // namespace flatshard
