package main

func page(r report) string { return "" }
func plot(r report) string { return "" }
