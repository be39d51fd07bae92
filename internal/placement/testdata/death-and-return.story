# Four nodes, twelve addresses: three each, and each node's three have three different nexts.
pool 12
member 1:ext-1
member 2:ext-1
member 3:ext-1
member 4:ext-1
allocate
----
10.0.0.1    owner 1:ext-1  next 2:ext-1
10.0.0.2    owner 2:ext-1  next 3:ext-1
10.0.0.3    owner 3:ext-1  next 4:ext-1
10.0.0.4    owner 4:ext-1  next 1:ext-1
10.0.0.5    owner 1:ext-1  next 3:ext-1
10.0.0.6    owner 2:ext-1  next 4:ext-1
10.0.0.7    owner 3:ext-1  next 1:ext-1
10.0.0.8    owner 4:ext-1  next 2:ext-1
10.0.0.9    owner 1:ext-1  next 4:ext-1
10.0.0.10   owner 2:ext-1  next 1:ext-1
10.0.0.11   owner 3:ext-1  next 2:ext-1
10.0.0.12   owner 4:ext-1  next 3:ext-1
move 10.0.0.1: nobody -> 1:ext-1, nobody held it; 1:ext-1 keeps the spread even
move 10.0.0.2: nobody -> 2:ext-1, nobody held it; 2:ext-1 keeps the spread even
move 10.0.0.3: nobody -> 3:ext-1, nobody held it; 3:ext-1 keeps the spread even
move 10.0.0.4: nobody -> 4:ext-1, nobody held it; 4:ext-1 keeps the spread even
move 10.0.0.5: nobody -> 1:ext-1, nobody held it; 1:ext-1 keeps the spread even
move 10.0.0.6: nobody -> 2:ext-1, nobody held it; 2:ext-1 keeps the spread even
move 10.0.0.7: nobody -> 3:ext-1, nobody held it; 3:ext-1 keeps the spread even
move 10.0.0.8: nobody -> 4:ext-1, nobody held it; 4:ext-1 keeps the spread even
move 10.0.0.9: nobody -> 1:ext-1, nobody held it; 1:ext-1 keeps the spread even
move 10.0.0.10: nobody -> 2:ext-1, nobody held it; 2:ext-1 keeps the spread even
move 10.0.0.11: nobody -> 3:ext-1, nobody held it; 3:ext-1 keeps the spread even
move 10.0.0.12: nobody -> 4:ext-1, nobody held it; 4:ext-1 keeps the spread even
decision 10.0.0.1: 1:ext-1, nobody held it; 1:ext-1 keeps the spread even; next is 2:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.2: 2:ext-1, nobody held it; 2:ext-1 keeps the spread even; next is 3:ext-1, so that the death of node 2 leaves the spread even
decision 10.0.0.3: 3:ext-1, nobody held it; 3:ext-1 keeps the spread even; next is 4:ext-1, so that the death of node 3 leaves the spread even
decision 10.0.0.4: 4:ext-1, nobody held it; 4:ext-1 keeps the spread even; next is 1:ext-1, so that the death of node 4 leaves the spread even
decision 10.0.0.5: 1:ext-1, nobody held it; 1:ext-1 keeps the spread even; next is 3:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.6: 2:ext-1, nobody held it; 2:ext-1 keeps the spread even; next is 4:ext-1, so that the death of node 2 leaves the spread even
decision 10.0.0.7: 3:ext-1, nobody held it; 3:ext-1 keeps the spread even; next is 1:ext-1, so that the death of node 3 leaves the spread even
decision 10.0.0.8: 4:ext-1, nobody held it; 4:ext-1 keeps the spread even; next is 2:ext-1, so that the death of node 4 leaves the spread even
decision 10.0.0.9: 1:ext-1, nobody held it; 1:ext-1 keeps the spread even; next is 4:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.10: 2:ext-1, nobody held it; 2:ext-1 keeps the spread even; next is 1:ext-1, so that the death of node 2 leaves the spread even
decision 10.0.0.11: 3:ext-1, nobody held it; 3:ext-1 keeps the spread even; next is 2:ext-1, so that the death of node 3 leaves the spread even
decision 10.0.0.12: 4:ext-1, nobody held it; 4:ext-1 keeps the spread even; next is 3:ext-1, so that the death of node 4 leaves the spread even

# Asked again, nothing changes.
allocate
----
10.0.0.1    owner 1:ext-1  next 2:ext-1
10.0.0.2    owner 2:ext-1  next 3:ext-1
10.0.0.3    owner 3:ext-1  next 4:ext-1
10.0.0.4    owner 4:ext-1  next 1:ext-1
10.0.0.5    owner 1:ext-1  next 3:ext-1
10.0.0.6    owner 2:ext-1  next 4:ext-1
10.0.0.7    owner 3:ext-1  next 1:ext-1
10.0.0.8    owner 4:ext-1  next 2:ext-1
10.0.0.9    owner 1:ext-1  next 4:ext-1
10.0.0.10   owner 2:ext-1  next 1:ext-1
10.0.0.11   owner 3:ext-1  next 2:ext-1
10.0.0.12   owner 4:ext-1  next 3:ext-1
nothing changes

# The plan for the death of n2 is on record: each of its addresses goes to its next.
explain 10.0.0.2
----
10.0.0.2: 2:ext-1, 2:ext-1 holds it and is fit; next stays 3:ext-1
  among 1:ext-1 weight 1 score 3.00: n1, held 3
  among 2:ext-1 weight 1 score 3.00: n2, held 3
  among 3:ext-1 weight 1 score 3.00: n3, held 3
  among 4:ext-1 weight 1 score 3.00: n4, held 3

plan-down 2
----
10.0.0.1    owner 1:ext-1  next 3:ext-1
10.0.0.2    owner 3:ext-1  next 4:ext-1
10.0.0.3    owner 3:ext-1  next 4:ext-1
10.0.0.4    owner 4:ext-1  next 1:ext-1
10.0.0.5    owner 1:ext-1  next 3:ext-1
10.0.0.6    owner 4:ext-1  next 1:ext-1
10.0.0.7    owner 3:ext-1  next 1:ext-1
10.0.0.8    owner 4:ext-1  next 3:ext-1
10.0.0.9    owner 1:ext-1  next 4:ext-1
10.0.0.10   owner 1:ext-1  next 4:ext-1
10.0.0.11   owner 3:ext-1  next 1:ext-1
10.0.0.12   owner 4:ext-1  next 3:ext-1
move 10.0.0.2: 2:ext-1 -> 3:ext-1, 2:ext-1 is not fit (down in this plan), 3:ext-1 was its next
move 10.0.0.6: 2:ext-1 -> 4:ext-1, 2:ext-1 is not fit (down in this plan), 4:ext-1 was its next
move 10.0.0.10: 2:ext-1 -> 1:ext-1, 2:ext-1 is not fit (down in this plan), 1:ext-1 was its next
decision 10.0.0.1: 1:ext-1, 1:ext-1 holds it and is fit; next is 3:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.2: 3:ext-1, 2:ext-1 is not fit (down in this plan), 3:ext-1 was its next; next is 4:ext-1, so that the death of node 3 leaves the spread even
decision 10.0.0.6: 4:ext-1, 2:ext-1 is not fit (down in this plan), 4:ext-1 was its next; next is 1:ext-1, so that the death of node 4 leaves the spread even
decision 10.0.0.8: 4:ext-1, 4:ext-1 holds it and is fit; next is 3:ext-1, so that the death of node 4 leaves the spread even
decision 10.0.0.10: 1:ext-1, 2:ext-1 is not fit (down in this plan), 1:ext-1 was its next; next is 4:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.11: 3:ext-1, 3:ext-1 holds it and is fit; next is 1:ext-1, so that the death of node 3 leaves the spread even

# n2 dies: that is what happens.
unfit 2 down
allocate
----
10.0.0.1    owner 1:ext-1  next 3:ext-1
10.0.0.2    owner 3:ext-1  next 4:ext-1
10.0.0.3    owner 3:ext-1  next 4:ext-1
10.0.0.4    owner 4:ext-1  next 1:ext-1
10.0.0.5    owner 1:ext-1  next 3:ext-1
10.0.0.6    owner 4:ext-1  next 1:ext-1
10.0.0.7    owner 3:ext-1  next 1:ext-1
10.0.0.8    owner 4:ext-1  next 3:ext-1
10.0.0.9    owner 1:ext-1  next 4:ext-1
10.0.0.10   owner 1:ext-1  next 4:ext-1
10.0.0.11   owner 3:ext-1  next 1:ext-1
10.0.0.12   owner 4:ext-1  next 3:ext-1
move 10.0.0.2: 2:ext-1 -> 3:ext-1, 2:ext-1 is not fit (down), 3:ext-1 was its next
move 10.0.0.6: 2:ext-1 -> 4:ext-1, 2:ext-1 is not fit (down), 4:ext-1 was its next
move 10.0.0.10: 2:ext-1 -> 1:ext-1, 2:ext-1 is not fit (down), 1:ext-1 was its next
decision 10.0.0.1: 1:ext-1, 1:ext-1 holds it and is fit; next is 3:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.2: 3:ext-1, 2:ext-1 is not fit (down), 3:ext-1 was its next; next is 4:ext-1, so that the death of node 3 leaves the spread even
decision 10.0.0.6: 4:ext-1, 2:ext-1 is not fit (down), 4:ext-1 was its next; next is 1:ext-1, so that the death of node 4 leaves the spread even
decision 10.0.0.8: 4:ext-1, 4:ext-1 holds it and is fit; next is 3:ext-1, so that the death of node 4 leaves the spread even
decision 10.0.0.10: 1:ext-1, 2:ext-1 is not fit (down), 1:ext-1 was its next; next is 4:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.11: 3:ext-1, 3:ext-1 holds it and is fit; next is 1:ext-1, so that the death of node 3 leaves the spread even

# It comes back, too recently to be trusted: nothing moves, also not in a rebalance, and it is nobody's next.
hold-down 2 flapped twice
allocate
----
10.0.0.1    owner 1:ext-1  next 3:ext-1
10.0.0.2    owner 3:ext-1  next 4:ext-1
10.0.0.3    owner 3:ext-1  next 4:ext-1
10.0.0.4    owner 4:ext-1  next 1:ext-1
10.0.0.5    owner 1:ext-1  next 3:ext-1
10.0.0.6    owner 4:ext-1  next 1:ext-1
10.0.0.7    owner 3:ext-1  next 1:ext-1
10.0.0.8    owner 4:ext-1  next 3:ext-1
10.0.0.9    owner 1:ext-1  next 4:ext-1
10.0.0.10   owner 1:ext-1  next 4:ext-1
10.0.0.11   owner 3:ext-1  next 1:ext-1
10.0.0.12   owner 4:ext-1  next 3:ext-1
nothing changes

rebalance
----
10.0.0.1    owner 1:ext-1  next 3:ext-1
10.0.0.2    owner 3:ext-1  next 4:ext-1
10.0.0.3    owner 3:ext-1  next 4:ext-1
10.0.0.4    owner 4:ext-1  next 1:ext-1
10.0.0.5    owner 1:ext-1  next 3:ext-1
10.0.0.6    owner 4:ext-1  next 1:ext-1
10.0.0.7    owner 3:ext-1  next 1:ext-1
10.0.0.8    owner 4:ext-1  next 3:ext-1
10.0.0.9    owner 1:ext-1  next 4:ext-1
10.0.0.10   owner 1:ext-1  next 4:ext-1
10.0.0.11   owner 3:ext-1  next 1:ext-1
10.0.0.12   owner 4:ext-1  next 3:ext-1
nothing changes

# The hold-down is over. Without leave to rebalance it is only planned for.
fit 2
allocate
----
10.0.0.1    owner 1:ext-1  next 2:ext-1
10.0.0.2    owner 3:ext-1  next 2:ext-1
10.0.0.3    owner 3:ext-1  next 2:ext-1
10.0.0.4    owner 4:ext-1  next 2:ext-1
10.0.0.5    owner 1:ext-1  next 2:ext-1
10.0.0.6    owner 4:ext-1  next 2:ext-1
10.0.0.7    owner 3:ext-1  next 2:ext-1
10.0.0.8    owner 4:ext-1  next 2:ext-1
10.0.0.9    owner 1:ext-1  next 2:ext-1
10.0.0.10   owner 1:ext-1  next 2:ext-1
10.0.0.11   owner 3:ext-1  next 2:ext-1
10.0.0.12   owner 4:ext-1  next 2:ext-1
decision 10.0.0.1: 1:ext-1, 1:ext-1 holds it and is fit; next is 2:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.2: 3:ext-1, 3:ext-1 holds it and is fit; next is 2:ext-1, so that the death of node 3 leaves the spread even
decision 10.0.0.3: 3:ext-1, 3:ext-1 holds it and is fit; next is 2:ext-1, so that the death of node 3 leaves the spread even
decision 10.0.0.4: 4:ext-1, 4:ext-1 holds it and is fit; next is 2:ext-1, so that the death of node 4 leaves the spread even
decision 10.0.0.5: 1:ext-1, 1:ext-1 holds it and is fit; next is 2:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.6: 4:ext-1, 4:ext-1 holds it and is fit; next is 2:ext-1, so that the death of node 4 leaves the spread even
decision 10.0.0.7: 3:ext-1, 3:ext-1 holds it and is fit; next is 2:ext-1, so that the death of node 3 leaves the spread even
decision 10.0.0.8: 4:ext-1, 4:ext-1 holds it and is fit; next is 2:ext-1, so that the death of node 4 leaves the spread even
decision 10.0.0.9: 1:ext-1, 1:ext-1 holds it and is fit; next is 2:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.10: 1:ext-1, 1:ext-1 holds it and is fit; next is 2:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.11: 3:ext-1, 3:ext-1 holds it and is fit; next is 2:ext-1, so that the death of node 3 leaves the spread even
decision 10.0.0.12: 4:ext-1, 4:ext-1 holds it and is fit; next is 2:ext-1, so that the death of node 4 leaves the spread even

# With leave for one idle address, that one returns.
rebalance 10.0.0.6
----
10.0.0.1    owner 1:ext-1  next 2:ext-1
10.0.0.2    owner 3:ext-1  next 2:ext-1
10.0.0.3    owner 3:ext-1  next 2:ext-1
10.0.0.4    owner 4:ext-1  next 2:ext-1
10.0.0.5    owner 1:ext-1  next 2:ext-1
10.0.0.6    owner 2:ext-1  next 4:ext-1
10.0.0.7    owner 3:ext-1  next 2:ext-1
10.0.0.8    owner 4:ext-1  next 2:ext-1
10.0.0.9    owner 1:ext-1  next 2:ext-1
10.0.0.10   owner 1:ext-1  next 4:ext-1
10.0.0.11   owner 3:ext-1  next 4:ext-1
10.0.0.12   owner 4:ext-1  next 2:ext-1
move 10.0.0.6: 4:ext-1 -> 2:ext-1, moved from 4:ext-1 to 2:ext-1 to even out the spread
decision 10.0.0.6: 2:ext-1, moved from 4:ext-1 to 2:ext-1 to even out the spread; next is 4:ext-1, so that the death of node 2 leaves the spread even
decision 10.0.0.10: 1:ext-1, 1:ext-1 holds it and is fit; next is 4:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.11: 3:ext-1, 3:ext-1 holds it and is fit; next is 4:ext-1, so that the death of node 3 leaves the spread even

# With leave for all, three moves in all suffice.
rebalance
----
10.0.0.1    owner 2:ext-1  next 3:ext-1
10.0.0.2    owner 2:ext-1  next 1:ext-1
10.0.0.3    owner 3:ext-1  next 2:ext-1
10.0.0.4    owner 4:ext-1  next 2:ext-1
10.0.0.5    owner 1:ext-1  next 2:ext-1
10.0.0.6    owner 2:ext-1  next 4:ext-1
10.0.0.7    owner 3:ext-1  next 1:ext-1
10.0.0.8    owner 4:ext-1  next 1:ext-1
10.0.0.9    owner 1:ext-1  next 3:ext-1
10.0.0.10   owner 1:ext-1  next 4:ext-1
10.0.0.11   owner 3:ext-1  next 4:ext-1
10.0.0.12   owner 4:ext-1  next 3:ext-1
move 10.0.0.1: 1:ext-1 -> 2:ext-1, moved from 1:ext-1 to 2:ext-1 to even out the spread
move 10.0.0.2: 3:ext-1 -> 2:ext-1, moved from 3:ext-1 to 2:ext-1 to even out the spread
decision 10.0.0.1: 2:ext-1, moved from 1:ext-1 to 2:ext-1 to even out the spread; next is 3:ext-1, so that the death of node 2 leaves the spread even
decision 10.0.0.2: 2:ext-1, moved from 3:ext-1 to 2:ext-1 to even out the spread; next is 1:ext-1, so that the death of node 2 leaves the spread even
decision 10.0.0.7: 3:ext-1, 3:ext-1 holds it and is fit; next is 1:ext-1, so that the death of node 3 leaves the spread even
decision 10.0.0.8: 4:ext-1, 4:ext-1 holds it and is fit; next is 1:ext-1, so that the death of node 4 leaves the spread even
decision 10.0.0.9: 1:ext-1, 1:ext-1 holds it and is fit; next is 3:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.12: 4:ext-1, 4:ext-1 holds it and is fit; next is 3:ext-1, so that the death of node 4 leaves the spread even

