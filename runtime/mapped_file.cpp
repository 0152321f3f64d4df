#include "runtime/mapped_file.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/check.h"

namespace flatshard {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int file =
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe is refused, not waited for
  check(file >= 0, path, ": cannot open: ", std::strerror(errno));
  struct stat status {};
  const bool regular = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  const size_t size = regular ? static_cast<size_t>(status.st_size) : 0;
  void* data = size > 0 ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : nullptr;
  const int error = errno;
  close(file);
  check(regular, path, ": not a regular file");
  check(data != MAP_FAILED, path, ": cannot map: ", std::strerror(error));
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void forget_pages(std::span<const std::byte> mapped) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t from = reinterpret_cast<uintptr_t>(mapped.data()), to = from + mapped.size();
  const uintptr_t begin = (from + page - 1) / page * page, end = to / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace flatshard
