# n1 has two member interfaces, n2 twice the weight.
pool 8
member 1:ext-1
member 1:ext-2
member 2:ext-1 weight=2
member 3:ext-1
allocate
----
10.0.0.1    owner 1:ext-1  next 2:ext-1
10.0.0.2    owner 1:ext-2  next 3:ext-1
10.0.0.3    owner 2:ext-1  next 3:ext-1
10.0.0.4    owner 3:ext-1  next 1:ext-2
10.0.0.5    owner 1:ext-1  next 2:ext-1
10.0.0.6    owner 2:ext-1  next 1:ext-1
10.0.0.7    owner 3:ext-1  next 2:ext-1
10.0.0.8    owner 2:ext-1  next 1:ext-2
move 10.0.0.1: nobody -> 1:ext-1, nobody held it; 1:ext-1 keeps the spread even
move 10.0.0.2: nobody -> 1:ext-2, nobody held it; 1:ext-2 keeps the spread even
move 10.0.0.3: nobody -> 2:ext-1, nobody held it; 2:ext-1 keeps the spread even
move 10.0.0.4: nobody -> 3:ext-1, nobody held it; 3:ext-1 keeps the spread even
move 10.0.0.5: nobody -> 1:ext-1, nobody held it; 1:ext-1 keeps the spread even
move 10.0.0.6: nobody -> 2:ext-1, nobody held it; 2:ext-1 keeps the spread even
move 10.0.0.7: nobody -> 3:ext-1, nobody held it; 3:ext-1 keeps the spread even
move 10.0.0.8: nobody -> 2:ext-1, nobody held it; 2:ext-1 keeps the spread even
decision 10.0.0.1: 1:ext-1, nobody held it; 1:ext-1 keeps the spread even; next is 2:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.2: 1:ext-2, nobody held it; 1:ext-2 keeps the spread even; next is 3:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.3: 2:ext-1, nobody held it; 2:ext-1 keeps the spread even; next is 3:ext-1, so that the death of node 2 leaves the spread even
decision 10.0.0.4: 3:ext-1, nobody held it; 3:ext-1 keeps the spread even; next is 1:ext-2, so that the death of node 3 leaves the spread even
decision 10.0.0.5: 1:ext-1, nobody held it; 1:ext-1 keeps the spread even; next is 2:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.6: 2:ext-1, nobody held it; 2:ext-1 keeps the spread even; next is 1:ext-1, so that the death of node 2 leaves the spread even
decision 10.0.0.7: 3:ext-1, nobody held it; 3:ext-1 keeps the spread even; next is 2:ext-1, so that the death of node 3 leaves the spread even
decision 10.0.0.8: 2:ext-1, nobody held it; 2:ext-1 keeps the spread even; next is 1:ext-2, so that the death of node 2 leaves the spread even

# An operator puts one address on n3: it goes there at once, and the others stay.
pin 10.0.0.1 3:ext-1
allocate
----
10.0.0.1    owner 3:ext-1  next 2:ext-1
10.0.0.2    owner 1:ext-2  next 2:ext-1
10.0.0.3    owner 2:ext-1  next 1:ext-1
10.0.0.4    owner 3:ext-1  next 1:ext-2
10.0.0.5    owner 1:ext-1  next 2:ext-1
10.0.0.6    owner 2:ext-1  next 1:ext-1
10.0.0.7    owner 3:ext-1  next 1:ext-1
10.0.0.8    owner 2:ext-1  next 1:ext-2
move 10.0.0.1: 1:ext-1 -> 3:ext-1, pinned to 3:ext-1
decision 10.0.0.1: 3:ext-1, pinned to 3:ext-1; next stays 2:ext-1
decision 10.0.0.2: 1:ext-2, 1:ext-2 holds it and is fit; next is 2:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.3: 2:ext-1, 2:ext-1 holds it and is fit; next is 1:ext-1, so that the death of node 2 leaves the spread even
decision 10.0.0.7: 3:ext-1, 3:ext-1 holds it and is fit; next is 1:ext-1, so that the death of node 3 leaves the spread even

# A rebalance evens out around the pin.
rebalance
----
10.0.0.1    owner 3:ext-1  next 2:ext-1
10.0.0.2    owner 1:ext-2  next 2:ext-1
10.0.0.3    owner 2:ext-1  next 1:ext-1
10.0.0.4    owner 3:ext-1  next 1:ext-2
10.0.0.5    owner 1:ext-1  next 2:ext-1
10.0.0.6    owner 2:ext-1  next 3:ext-1
10.0.0.7    owner 1:ext-1  next 3:ext-1
10.0.0.8    owner 2:ext-1  next 1:ext-2
move 10.0.0.7: 3:ext-1 -> 1:ext-1, moved from 3:ext-1 to 1:ext-1 to even out the spread
decision 10.0.0.6: 2:ext-1, 2:ext-1 holds it and is fit; next is 3:ext-1, so that the death of node 2 leaves the spread even
decision 10.0.0.7: 1:ext-1, moved from 3:ext-1 to 1:ext-1 to even out the spread; next is 3:ext-1, so that the death of node 1 leaves the spread even

# n3 loses its carrier: the pinned address goes elsewhere for the time being.
unfit 3 carrier lost
allocate
----
10.0.0.1    owner 2:ext-1  next 1:ext-1
10.0.0.2    owner 1:ext-2  next 2:ext-1
10.0.0.3    owner 2:ext-1  next 1:ext-1
10.0.0.4    owner 1:ext-2  next 2:ext-1
10.0.0.5    owner 1:ext-1  next 2:ext-1
10.0.0.6    owner 2:ext-1  next 1:ext-2
10.0.0.7    owner 1:ext-1  next 2:ext-1
10.0.0.8    owner 2:ext-1  next 1:ext-2
move 10.0.0.1: 3:ext-1 -> 2:ext-1, 3:ext-1 is not fit (carrier lost), 2:ext-1 was its next; pinned to 3:ext-1, which is not fit (carrier lost): the address returns when it is
move 10.0.0.4: 3:ext-1 -> 1:ext-2, 3:ext-1 is not fit (carrier lost), 1:ext-2 was its next
decision 10.0.0.1: 2:ext-1, 3:ext-1 is not fit (carrier lost), 2:ext-1 was its next; pinned to 3:ext-1, which is not fit (carrier lost): the address returns when it is; next is 1:ext-1, so that the death of node 2 leaves the spread even
decision 10.0.0.4: 1:ext-2, 3:ext-1 is not fit (carrier lost), 1:ext-2 was its next; next is 2:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.6: 2:ext-1, 2:ext-1 holds it and is fit; next is 1:ext-2, so that the death of node 2 leaves the spread even
decision 10.0.0.7: 1:ext-1, 1:ext-1 holds it and is fit; next is 2:ext-1, so that the death of node 1 leaves the spread even

explain 10.0.0.1
----
10.0.0.1: 2:ext-1, 2:ext-1 holds it and is fit; pinned to 3:ext-1, which is not fit (carrier lost): the address returns when it is; next stays 1:ext-1
  among 1:ext-1 weight 1 score 2.00: n1, held 2
  among 1:ext-2 weight 1 score 2.00: n1, held 2
  among 2:ext-1 weight 2 score 2.00: n2, held 4
  left out 3:ext-1: carrier lost

# It returns by itself when n3 does; what else n3 held waits for a rebalance.
fit 3
allocate
----
10.0.0.1    owner 3:ext-1  next 2:ext-1
10.0.0.2    owner 1:ext-2  next 2:ext-1
10.0.0.3    owner 2:ext-1  next 3:ext-1
10.0.0.4    owner 1:ext-2  next 2:ext-1
10.0.0.5    owner 1:ext-1  next 3:ext-1
10.0.0.6    owner 2:ext-1  next 1:ext-2
10.0.0.7    owner 1:ext-1  next 3:ext-1
10.0.0.8    owner 2:ext-1  next 3:ext-1
move 10.0.0.1: 2:ext-1 -> 3:ext-1, pinned to 3:ext-1
decision 10.0.0.1: 3:ext-1, pinned to 3:ext-1; next is 2:ext-1, so that the death of node 3 leaves the spread even
decision 10.0.0.3: 2:ext-1, 2:ext-1 holds it and is fit; next is 3:ext-1, so that the death of node 2 leaves the spread even
decision 10.0.0.5: 1:ext-1, 1:ext-1 holds it and is fit; next is 3:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.7: 1:ext-1, 1:ext-1 holds it and is fit; next is 3:ext-1, so that the death of node 1 leaves the spread even
decision 10.0.0.8: 2:ext-1, 2:ext-1 holds it and is fit; next is 3:ext-1, so that the death of node 2 leaves the spread even

# With n2 and n3 gone n1's interfaces are each other's next.
unfit 2 down
unfit 3 down
allocate
----
10.0.0.1    owner 1:ext-1  next 1:ext-2
10.0.0.2    owner 1:ext-2  next 1:ext-1
10.0.0.3    owner 1:ext-2  next 1:ext-1
10.0.0.4    owner 1:ext-2  next 1:ext-1
10.0.0.5    owner 1:ext-1  next 1:ext-2
10.0.0.6    owner 1:ext-2  next 1:ext-1
10.0.0.7    owner 1:ext-1  next 1:ext-2
10.0.0.8    owner 1:ext-1  next 1:ext-2
move 10.0.0.1: 3:ext-1 -> 1:ext-1, 3:ext-1 is not fit (down), its next 2:ext-1 is not fit (down); 1:ext-1 keeps the spread even; pinned to 3:ext-1, which is not fit (down): the address returns when it is
move 10.0.0.3: 2:ext-1 -> 1:ext-2, 2:ext-1 is not fit (down), its next 3:ext-1 is not fit (down); 1:ext-2 keeps the spread even
move 10.0.0.6: 2:ext-1 -> 1:ext-2, 2:ext-1 is not fit (down), 1:ext-2 was its next
move 10.0.0.8: 2:ext-1 -> 1:ext-1, 2:ext-1 is not fit (down), its next 3:ext-1 is not fit (down); 1:ext-1 keeps the spread even
decision 10.0.0.1: 1:ext-1, 3:ext-1 is not fit (down), its next 2:ext-1 is not fit (down); 1:ext-1 keeps the spread even; pinned to 3:ext-1, which is not fit (down): the address returns when it is; next is 1:ext-2, as no other node is fit
decision 10.0.0.2: 1:ext-2, 1:ext-2 holds it and is fit; next is 1:ext-1, as no other node is fit
decision 10.0.0.3: 1:ext-2, 2:ext-1 is not fit (down), its next 3:ext-1 is not fit (down); 1:ext-2 keeps the spread even; next is 1:ext-1, as no other node is fit
decision 10.0.0.4: 1:ext-2, 1:ext-2 holds it and is fit; next is 1:ext-1, as no other node is fit
decision 10.0.0.5: 1:ext-1, 1:ext-1 holds it and is fit; next is 1:ext-2, as no other node is fit
decision 10.0.0.6: 1:ext-2, 2:ext-1 is not fit (down), 1:ext-2 was its next; next is 1:ext-1, as no other node is fit
decision 10.0.0.7: 1:ext-1, 1:ext-1 holds it and is fit; next is 1:ext-2, as no other node is fit
decision 10.0.0.8: 1:ext-1, 2:ext-1 is not fit (down), its next 3:ext-1 is not fit (down); 1:ext-1 keeps the spread even; next is 1:ext-2, as no other node is fit

# Nobody left: the record stays, so that whoever returns finds what it held.
unfit 1 down
allocate
----
10.0.0.1    owner 1:ext-1  next 1:ext-2
10.0.0.2    owner 1:ext-2  next 1:ext-1
10.0.0.3    owner 1:ext-2  next 1:ext-1
10.0.0.4    owner 1:ext-2  next 1:ext-1
10.0.0.5    owner 1:ext-1  next 1:ext-2
10.0.0.6    owner 1:ext-2  next 1:ext-1
10.0.0.7    owner 1:ext-1  next 1:ext-2
10.0.0.8    owner 1:ext-1  next 1:ext-2
nothing changes

explain 10.0.0.1
----
10.0.0.1: 1:ext-1, no member is fit; the record stays with 1:ext-1; pinned to 3:ext-1, which is not fit (down): the address returns when it is; next stays 1:ext-2
  left out 1:ext-1: down
  left out 1:ext-2: down
  left out 2:ext-1: down
  left out 3:ext-1: down

