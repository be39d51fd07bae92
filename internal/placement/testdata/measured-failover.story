# Nexts go by load: what n4 holds, n2 and n3 can take, n1 is busy.
policy conn_count
pool 4
member 1:ext-1 connections=300
member 2:ext-1 connections=100
member 3:ext-1 connections=120
member 4:ext-1 connections=80
allocate
----
10.0.0.1    owner 1:ext-1  next 4:ext-1
10.0.0.2    owner 2:ext-1  next 4:ext-1
10.0.0.3    owner 3:ext-1  next 4:ext-1
10.0.0.4    owner 4:ext-1  next 2:ext-1
move 10.0.0.1: nobody -> 1:ext-1, nobody held it; 1:ext-1 keeps the spread even
move 10.0.0.2: nobody -> 2:ext-1, nobody held it; 2:ext-1 keeps the spread even
move 10.0.0.3: nobody -> 3:ext-1, nobody held it; 3:ext-1 keeps the spread even
move 10.0.0.4: nobody -> 4:ext-1, nobody held it; 4:ext-1 keeps the spread even
decision 10.0.0.1: 1:ext-1, nobody held it; 1:ext-1 keeps the spread even; next is 4:ext-1, which has the least load
decision 10.0.0.2: 2:ext-1, nobody held it; 2:ext-1 keeps the spread even; next is 4:ext-1, which has the least load
decision 10.0.0.3: 3:ext-1, nobody held it; 3:ext-1 keeps the spread even; next is 4:ext-1, which has the least load
decision 10.0.0.4: 4:ext-1, nobody held it; 4:ext-1 keeps the spread even; next is 2:ext-1, which has the least load

# A small change of the loads leaves the plan as it is.
member 2:ext-1 connections=110
member 3:ext-1 connections=110
allocate
----
10.0.0.1    owner 1:ext-1  next 4:ext-1
10.0.0.2    owner 2:ext-1  next 4:ext-1
10.0.0.3    owner 3:ext-1  next 4:ext-1
10.0.0.4    owner 4:ext-1  next 2:ext-1
nothing changes

# A large one does not.
member 2:ext-1 connections=500
allocate
----
10.0.0.1    owner 1:ext-1  next 4:ext-1
10.0.0.2    owner 2:ext-1  next 4:ext-1
10.0.0.3    owner 3:ext-1  next 4:ext-1
10.0.0.4    owner 4:ext-1  next 3:ext-1
decision 10.0.0.4: 4:ext-1, 4:ext-1 holds it and is fit; next is 3:ext-1, which has the least load

explain 10.0.0.3
----
10.0.0.3: 3:ext-1, 3:ext-1 holds it and is fit; next stays 4:ext-1, as no other has so much less load
  among 1:ext-1 weight 1 score 300.00: n1, held 1
  among 2:ext-1 weight 1 score 500.00: n2, held 1
  among 3:ext-1 weight 1 score 110.00: n3, held 1
  among 4:ext-1 weight 1 score 80.00: n4, held 1

# A stale sample counts as the mean of the others.
member 3:ext-1 connections=0 stale
explain 10.0.0.3
----
10.0.0.3: 3:ext-1, 3:ext-1 holds it and is fit; next stays 4:ext-1, as no other has so much less load
  among 1:ext-1 weight 1 score 300.00: n1, held 1
  among 2:ext-1 weight 1 score 500.00: n2, held 1
  among 3:ext-1 weight 1 score 293.33: n3, held 1; its load is stale and counts as the mean of the others
  among 4:ext-1 weight 1 score 80.00: n4, held 1

# n4 dies. Its next took over; what had no next that is fit would go to the least loaded.
unfit 4 down
unfit 1 draining
allocate
----
10.0.0.1    owner 2:ext-1  next 3:ext-1
10.0.0.2    owner 2:ext-1  next 3:ext-1
10.0.0.3    owner 3:ext-1  next 2:ext-1
10.0.0.4    owner 3:ext-1  next 2:ext-1
move 10.0.0.1: 1:ext-1 -> 2:ext-1, 1:ext-1 is not fit (draining), its next 4:ext-1 is not fit (down); 2:ext-1 has the least load
move 10.0.0.4: 4:ext-1 -> 3:ext-1, 4:ext-1 is not fit (down), 3:ext-1 was its next
decision 10.0.0.1: 2:ext-1, 1:ext-1 is not fit (draining), its next 4:ext-1 is not fit (down); 2:ext-1 has the least load; next is 3:ext-1, which has the least load
decision 10.0.0.2: 2:ext-1, 2:ext-1 holds it and is fit; next is 3:ext-1, which has the least load
decision 10.0.0.3: 3:ext-1, 3:ext-1 holds it and is fit; next is 2:ext-1, which has the least load
decision 10.0.0.4: 3:ext-1, 4:ext-1 is not fit (down), 3:ext-1 was its next; next is 2:ext-1, which has the least load

