#include "train/step/activation_pages.h"

#include "runtime/memory.h"

namespace flatshard {

ActivationPages::ActivationPages(CopyStreams copies, Arena& even, Arena& odd, Arena& host)
    : copies_(copies), host_(host) {
  pages_[0].arena = &even;
  pages_[1].arena = &odd;
}

void ActivationPages::begin() {
  host_.rewind(0);
  homes_.clear();
  for (Page& page : pages_) page.has_tenant = false;
}

Arena& ActivationPages::claim(Stream& compute, const Key& key) {
  Page& page = pages_[index(key)];
  compute.wait(page.stored);  // the last tenant is in host memory
  page.arena->rewind(0);
  page.tenant = key;
  page.has_tenant = true;
  return *page.arena;
}

void ActivationPages::store(Stream& compute, const Key& key) {
  Page& page = pages_[index(key)];
  check(page.has_tenant && page.tenant == key, "activations are stored that are in no page");
  if (page.arena->used() == 0) return;
  Home& home = homes_[key];
  home.page = page.arena->since(0);
  if (home.host.empty()) home.host = host_.alloc(DType::u8, home.page.shape);
  compute.record(page.written);
  copies_.to_host.wait(page.written);
  copy(copies_.to_host, home.host, home.page);
  copies_.to_host.record(page.stored);
}

void ActivationPages::fetch(const Key& key) {
  Page& page = pages_[index(key)];
  const auto home = homes_.find(key);
  if (home == homes_.end() || (page.has_tenant && page.tenant == key)) return;
  Stream& in = copies_.to_device;
  in.wait(page.stored);    // host memory has these, which left the same page, and the page's last tenant
  in.wait(page.released);  // compute is done with that
  copy(in, home->second.page, home->second.host);
  in.record(page.arrived);
  page.tenant = key;
  page.has_tenant = true;
}

void ActivationPages::use(Stream& compute, const Key& key) { compute.wait(pages_[index(key)].arrived); }

void ActivationPages::release(Stream& compute, const Key& key) {
  compute.record(pages_[index(key)].released);
}

void ActivationPages::finish(Stream& compute) {
  for (const Page& page : pages_) compute.wait(page.stored);
}

}  // namespace flatshard
