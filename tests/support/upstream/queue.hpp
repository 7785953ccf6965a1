// A queue for tests of Backend/1.
#pragma once
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
template <class T> class ThreadSafeQueue {
  std::deque<T> items; std::mutex lock; std::condition_variable ready;
 public:
  void push(T item) { std::lock_guard<std::mutex> held(lock); items.push_back(item); ready.notify_one(); }
  bool try_pop(T& out) { std::lock_guard<std::mutex> held(lock); if (items.empty()) return false; out = items.front(); items.pop_front(); return true; }
};
