# Four nodes, four addresses: whoever dies, one survivor has two and the others one.
pool 4
member 1:ext-1
member 2:ext-1
member 3:ext-1
member 4:ext-1
allocate
----
10.0.0.1    owner 1:ext-1  next 3:ext-1
10.0.0.2    owner 2:ext-1  next 1:ext-1
10.0.0.3    owner 3:ext-1  next 4:ext-1
10.0.0.4    owner 4:ext-1  next 2:ext-1
move 10.0.0.1: nobody -> 1:ext-1, nobody held it; 1:ext-1 keeps the spread even
move 10.0.0.2: nobody -> 2:ext-1, nobody held it; 2:ext-1 keeps the spread even
move 10.0.0.3: nobody -> 3:ext-1, nobody held it; 3:ext-1 keeps the spread even
move 10.0.0.4: nobody -> 4:ext-1, nobody held it; 4:ext-1 keeps the spread even
decision 10.0.0.1: 1:ext-1, nobody held it; 1:ext-1 keeps the spread even; next is 3:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.2: 2:ext-1, nobody held it; 2:ext-1 keeps the spread even; next is 1:ext-1, so that the death of node 2 leaves the spread even
decision 10.0.0.3: 3:ext-1, nobody held it; 3:ext-1 keeps the spread even; next is 4:ext-1, so that the death of node 3 leaves the spread even
decision 10.0.0.4: 4:ext-1, nobody held it; 4:ext-1 keeps the spread even; next is 2:ext-1, so that the death of node 4 leaves the spread even

plan-down 1
----
10.0.0.1    owner 3:ext-1  next 2:ext-1
10.0.0.2    owner 2:ext-1  next 4:ext-1
10.0.0.3    owner 3:ext-1  next 4:ext-1
10.0.0.4    owner 4:ext-1  next 2:ext-1
move 10.0.0.1: 1:ext-1 -> 3:ext-1, 1:ext-1 is not fit (down in this plan), 3:ext-1 was its next
decision 10.0.0.1: 3:ext-1, 1:ext-1 is not fit (down in this plan), 3:ext-1 was its next; next is 2:ext-1, so that the death of node 3 leaves the spread even
decision 10.0.0.2: 2:ext-1, 2:ext-1 holds it and is fit; next is 4:ext-1, so that the death of node 2 leaves the spread even

plan-down 4
----
10.0.0.1    owner 1:ext-1  next 3:ext-1
10.0.0.2    owner 2:ext-1  next 1:ext-1
10.0.0.3    owner 3:ext-1  next 1:ext-1
10.0.0.4    owner 2:ext-1  next 3:ext-1
move 10.0.0.4: 4:ext-1 -> 2:ext-1, 4:ext-1 is not fit (down in this plan), 2:ext-1 was its next
decision 10.0.0.3: 3:ext-1, 3:ext-1 holds it and is fit; next is 1:ext-1, so that the death of node 3 leaves the spread even
decision 10.0.0.4: 2:ext-1, 4:ext-1 is not fit (down in this plan), 2:ext-1 was its next; next is 3:ext-1, so that the death of node 2 leaves the spread even

# Two at once: an address whose next dies too is placed anew.
plan-down 1 2
----
10.0.0.1    owner 3:ext-1  next 4:ext-1
10.0.0.2    owner 4:ext-1  next 3:ext-1
10.0.0.3    owner 3:ext-1  next 4:ext-1
10.0.0.4    owner 4:ext-1  next 3:ext-1
move 10.0.0.1: 1:ext-1 -> 3:ext-1, 1:ext-1 is not fit (down in this plan), 3:ext-1 was its next
move 10.0.0.2: 2:ext-1 -> 4:ext-1, 2:ext-1 is not fit (down in this plan), its next 1:ext-1 is not fit (down in this plan); 4:ext-1 keeps the spread even
decision 10.0.0.1: 3:ext-1, 1:ext-1 is not fit (down in this plan), 3:ext-1 was its next; next is 4:ext-1, so that the death of node 3 leaves the spread even
decision 10.0.0.2: 4:ext-1, 2:ext-1 is not fit (down in this plan), its next 1:ext-1 is not fit (down in this plan); 4:ext-1 keeps the spread even; next is 3:ext-1, so that the death of node 4 leaves the spread even
decision 10.0.0.4: 4:ext-1, 4:ext-1 holds it and is fit; next is 3:ext-1, so that the death of node 4 leaves the spread even

# All at once: the record stays as it is.
plan-down 1 2 3 4
----
10.0.0.1    owner 1:ext-1  next 3:ext-1
10.0.0.2    owner 2:ext-1  next 1:ext-1
10.0.0.3    owner 3:ext-1  next 4:ext-1
10.0.0.4    owner 4:ext-1  next 2:ext-1
nothing changes

