class M(nn.Module):
	def __init__(self):
		super().__init__()
		self.drop = nn.Dropout(0.)
	def forward(self, q, k, v, need=False):
		s = torch.matmul(q, \
  k.transpose(-1, -2)) * 0.5
		# c
		w = self.drop(F.softmax(s, dim=-1))  # type: ignore
		y = torch.matmul(w, v)
		return (y, w) if need else y
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4))
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),True)
