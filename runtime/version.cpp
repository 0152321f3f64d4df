#include "runtime/version.h"

#include <iterator>
#include <sstream>

#include "build_config.h"
#include "build_info.h"
#include "revision.h"

namespace flatshard {
namespace {

std::string or_no(const std::string& text) { return text.empty() ? "no" : text; }
std::string yes_or_no(bool built) { return built ? "yes" : "no"; }

}  // namespace

std::string version_and_revision() {
  const std::string revision = kRevision;
  return kVersion + (revision.empty() ? "" : ", revision " + revision);
}

std::string version_text(const std::string& program) {
  const std::string flags = kCompilerFlags;
  std::ostringstream out;
  out << program << " (Flatshard) " << version_and_revision() << '\n'
      << "compiler  " << kCompiler << ", " << kBuildType << (flags.empty() ? "" : ", ") << flags << '\n'
      << "CUDA      " << or_no(kCudaVersion) << '\n'
      << "cuBLASLt  " << yes_or_no(kCublasBuilt) << '\n'
      << "NCCL      " << yes_or_no(kNcclBuilt) << '\n'
      << "MPI       " << or_no(kMpiVersion) << '\n'
      << "oneDNN    " << yes_or_no(kOneDnnBuilt) << '\n'
      << "PCRE2     " << yes_or_no(kPcre2Built) << '\n'
      << "utf8proc  " << yes_or_no(kUtf8procBuilt) << '\n'
      << "zlib      " << yes_or_no(kZlibBuilt) << '\n'
      << "zstd      " << yes_or_no(kZstdBuilt) << '\n'
      << "Arrow     " << or_no(kArrowVersion) << '\n'
      << "libyaml   " << yes_or_no(kLibyamlBuilt) << '\n'
      << "libjpeg   " << yes_or_no(kLibjpegBuilt) << '\n'
      << "libpng    " << yes_or_no(kLibpngBuilt) << '\n'
      << "libwebp   " << yes_or_no(kLibwebpBuilt);
  return std::move(out).str();
}

std::string version_number() { return kVersion; }

std::string revision_date() { return kRevisionDate; }

std::vector<std::string> installed_programs() {
  std::istringstream names(kPrograms);
  return {std::istream_iterator<std::string>(names), {}};
}

}  // namespace flatshard
