"""Types of cupyx.jit.thrust."""

# ---- written by stubs/generate.py ----

from typing import Any

adjacent_difference: Any
binary_search: Any
copy: Any
count: Any
device: Any
equal: Any
equal_range: Any
exclusive_scan: Any
exclusive_scan_by_key: Any
fill: Any
find: Any
gather: Any
host: Any
inclusive_scan: Any
inclusive_scan_by_key: Any
inner_product: Any
is_sorted: Any
is_sorted_until: Any
lower_bound: Any
make_constant_iterator: Any
make_counting_iterator: Any
mismatch: Any
reduce: Any
reduce_by_key: Any
remove: Any
remove_copy: Any
replace: Any
replace_copy: Any
reverse: Any
reverse_copy: Any
scatter: Any
seq: Any
sequence: Any
set_difference: Any
set_difference_by_key: Any
set_intersection: Any
set_intersection_by_key: Any
set_symmetric_difference: Any
set_symmetric_difference_by_key: Any
set_union: Any
set_union_by_key: Any
sort: Any
sort_by_key: Any
stable_sort: Any
stable_sort_by_key: Any
swap_ranges: Any
unique: Any
unique_by_key: Any
upper_bound: Any
