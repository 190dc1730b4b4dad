"""Facts about cities, airports, mountains and borders; coordinates are to a tenth of a degree."""

from __future__ import annotations

from deepjoin.demo.sheets import records

#: City, country (ISO-2), latitude, longitude.
CITIES = records("""
London|GB|51.5|-0.1
Birmingham|GB|52.5|-1.9
Manchester|GB|53.5|-2.2
Glasgow|GB|55.9|-4.3
Edinburgh|GB|56.0|-3.2
Paris|FR|48.9|2.4
Lyon|FR|45.8|4.8
Marseille|FR|43.3|5.4
Toulouse|FR|43.6|1.4
Berlin|DE|52.5|13.4
Hamburg|DE|53.6|10.0
Munich|DE|48.1|11.6
Cologne|DE|50.9|7.0
Frankfurt|DE|50.1|8.7
Madrid|ES|40.4|-3.7
Barcelona|ES|41.4|2.2
Valencia|ES|39.5|-0.4
Seville|ES|37.4|-6.0
Rome|IT|41.9|12.5
Milan|IT|45.5|9.2
Naples|IT|40.9|14.3
Turin|IT|45.1|7.7
Florence|IT|43.8|11.3
Amsterdam|NL|52.4|4.9
Rotterdam|NL|51.9|4.5
Brussels|BE|50.8|4.4
Antwerp|BE|51.2|4.4
Vienna|AT|48.2|16.4
Zurich|CH|47.4|8.5
Geneva|CH|46.2|6.1
Lisbon|PT|38.7|-9.1
Porto|PT|41.2|-8.6
Dublin|IE|53.3|-6.3
Copenhagen|DK|55.7|12.6
Stockholm|SE|59.3|18.1
Gothenburg|SE|57.7|12.0
Oslo|NO|59.9|10.8
Helsinki|FI|60.2|24.9
Reykjavik|IS|64.1|-21.9
Warsaw|PL|52.2|21.0
Kraków|PL|50.1|19.9
Prague|CZ|50.1|14.4
Budapest|HU|47.5|19.0
Bucharest|RO|44.4|26.1
Belgrade|RS|44.8|20.5
Athens|GR|38.0|23.7
Thessaloniki|GR|40.6|22.9
Zagreb|HR|45.8|16.0
Kyiv|UA|50.5|30.5
Riga|LV|56.9|24.1
Moscow|RU|55.8|37.6
Saint Petersburg|RU|59.9|30.3
Istanbul|TR|41.0|29.0
Ankara|TR|39.9|32.9
Izmir|TR|38.4|27.1
Tokyo|JP|35.7|139.7
Osaka|JP|34.7|135.5
Yokohama|JP|35.4|139.6
Nagoya|JP|35.2|136.9
Sapporo|JP|43.1|141.4
Seoul|KR|37.6|127.0
Busan|KR|35.2|129.1
Beijing|CN|39.9|116.4
Shanghai|CN|31.2|121.5
Guangzhou|CN|23.1|113.3
Shenzhen|CN|22.5|114.1
Chengdu|CN|30.7|104.1
New Delhi|IN|28.6|77.2
Mumbai|IN|19.1|72.9
Bengaluru|IN|13.0|77.6
Chennai|IN|13.1|80.3
Kolkata|IN|22.6|88.4
Karachi|PK|24.9|67.0
Lahore|PK|31.5|74.3
Dhaka|BD|23.8|90.4
Bangkok|TH|13.8|100.5
Jakarta|ID|-6.2|106.8
Surabaya|ID|-7.3|112.8
Manila|PH|14.6|121.0
Hanoi|VN|21.0|105.8
Ho Chi Minh City|VN|10.8|106.7
Kuala Lumpur|MY|3.1|101.7
Singapore|SG|1.3|103.8
Tehran|IR|35.7|51.4
Baghdad|IQ|33.3|44.4
Riyadh|SA|24.7|46.7
Jeddah|SA|21.5|39.2
Dubai|AE|25.2|55.3
Abu Dhabi|AE|24.5|54.4
Doha|QA|25.3|51.5
Cairo|EG|30.0|31.2
Alexandria|EG|31.2|29.9
Casablanca|MA|33.6|-7.6
Algiers|DZ|36.8|3.1
Lagos|NG|6.5|3.4
Abuja|NG|9.1|7.5
Accra|GH|5.6|-0.2
Abidjan|CI|5.3|-4.0
Dakar|SN|14.7|-17.4
Nairobi|KE|-1.3|36.8
Addis Ababa|ET|9.0|38.7
Johannesburg|ZA|-26.2|28.0
Cape Town|ZA|-33.9|18.4
New York|US|40.7|-74.0
Los Angeles|US|34.1|-118.2
Chicago|US|41.9|-87.6
Houston|US|29.8|-95.4
Dallas|US|32.8|-96.8
Austin|US|30.3|-97.7
Charlotte|US|35.2|-80.8
Phoenix|US|33.4|-112.1
San Francisco|US|37.8|-122.4
Seattle|US|47.6|-122.3
Boston|US|42.4|-71.1
Miami|US|25.8|-80.2
Toronto|CA|43.7|-79.4
Montreal|CA|45.5|-73.6
Vancouver|CA|49.3|-123.1
Mexico City|MX|19.4|-99.1
Guadalajara|MX|20.7|-103.3
Monterrey|MX|25.7|-100.3
São Paulo|BR|-23.6|-46.6
Rio de Janeiro|BR|-22.9|-43.2
Brasília|BR|-15.8|-47.9
Buenos Aires|AR|-34.6|-58.4
Córdoba|AR|-31.4|-64.2
Lima|PE|-12.0|-77.0
Bogotá|CO|4.7|-74.1
Medellín|CO|6.2|-75.6
Quito|EC|-0.2|-78.5
Montevideo|UY|-34.9|-56.2
Sydney|AU|-33.9|151.2
Melbourne|AU|-37.8|145.0
Brisbane|AU|-27.5|153.0
Perth|AU|-32.0|115.9
Adelaide|AU|-34.9|138.6
""")

#: IATA code, airport, the city it serves, country (ISO-2).
AIRPORTS = records("""
LHR|Heathrow Airport|London|GB
LGW|Gatwick Airport|London|GB
MAN|Manchester Airport|Manchester|GB
CDG|Charles de Gaulle Airport|Paris|FR
ORY|Orly Airport|Paris|FR
FRA|Frankfurt Airport|Frankfurt|DE
MUC|Munich Airport|Munich|DE
BER|Berlin Brandenburg Airport|Berlin|DE
HAM|Hamburg Airport|Hamburg|DE
MAD|Adolfo Suárez Madrid–Barajas Airport|Madrid|ES
BCN|Josep Tarradellas Barcelona–El Prat Airport|Barcelona|ES
FCO|Leonardo da Vinci–Fiumicino Airport|Rome|IT
MXP|Milan Malpensa Airport|Milan|IT
AMS|Amsterdam Airport Schiphol|Amsterdam|NL
BRU|Brussels Airport|Brussels|BE
VIE|Vienna International Airport|Vienna|AT
ZRH|Zurich Airport|Zurich|CH
GVA|Geneva Airport|Geneva|CH
LIS|Humberto Delgado Airport|Lisbon|PT
DUB|Dublin Airport|Dublin|IE
CPH|Copenhagen Airport|Copenhagen|DK
ARN|Stockholm Arlanda Airport|Stockholm|SE
OSL|Oslo Airport, Gardermoen|Oslo|NO
KEF|Keflavík International Airport|Reykjavik|IS
WAW|Warsaw Chopin Airport|Warsaw|PL
PRG|Václav Havel Airport Prague|Prague|CZ
ATH|Athens International Airport|Athens|GR
IST|Istanbul Airport|Istanbul|TR
DXB|Dubai International Airport|Dubai|AE
DOH|Hamad International Airport|Doha|QA
RUH|King Khalid International Airport|Riyadh|SA
DEL|Indira Gandhi International Airport|New Delhi|IN
BOM|Chhatrapati Shivaji Maharaj International Airport|Mumbai|IN
SIN|Singapore Changi Airport|Singapore|SG
KUL|Kuala Lumpur International Airport|Kuala Lumpur|MY
BKK|Suvarnabhumi Airport|Bangkok|TH
CGK|Soekarno–Hatta International Airport|Jakarta|ID
MNL|Ninoy Aquino International Airport|Manila|PH
HND|Haneda Airport|Tokyo|JP
NRT|Narita International Airport|Tokyo|JP
KIX|Kansai International Airport|Osaka|JP
ICN|Incheon International Airport|Seoul|KR
PEK|Beijing Capital International Airport|Beijing|CN
PVG|Shanghai Pudong International Airport|Shanghai|CN
SYD|Sydney Kingsford Smith Airport|Sydney|AU
MEL|Melbourne Airport|Melbourne|AU
AKL|Auckland Airport|Auckland|NZ
JFK|John F. Kennedy International Airport|New York|US
LAX|Los Angeles International Airport|Los Angeles|US
ORD|O'Hare International Airport|Chicago|US
SFO|San Francisco International Airport|San Francisco|US
DFW|Dallas Fort Worth International Airport|Dallas|US
CLT|Charlotte Douglas International Airport|Charlotte|US
YYZ|Toronto Pearson International Airport|Toronto|CA
YVR|Vancouver International Airport|Vancouver|CA
MEX|Benito Juárez International Airport|Mexico City|MX
GRU|São Paulo/Guarulhos International Airport|São Paulo|BR
EZE|Ministro Pistarini International Airport|Buenos Aires|AR
LIM|Jorge Chávez International Airport|Lima|PE
JNB|O. R. Tambo International Airport|Johannesburg|ZA
""")

#: Mountain, height in metres, one country (ISO-2) it stands in.
PEAKS = records("""
Mount Everest|8849|NP
K2|8611|PK
Kangchenjunga|8586|NP
Lhotse|8516|NP
Makalu|8485|NP
Nanga Parbat|8126|PK
Annapurna I|8091|NP
Aconcagua|6961|AR
Huascarán|6768|PE
Chimborazo|6263|EC
Denali|6190|US
Kilimanjaro|5895|TZ
Elbrus|5642|RU
Pico de Orizaba|5636|MX
Mount Kenya|5199|KE
Mount Ararat|5137|TR
Mont Blanc|4806|FR
Matterhorn|4478|CH
Mount Whitney|4421|US
Mount Rainier|4392|US
Toubkal|4167|MA
Kinabalu|4095|MY
Grossglockner|3798|AT
Mount Fuji|3776|JP
Aoraki / Mount Cook|3724|NZ
Teide|3715|ES
Zugspitze|2962|DE
Mount Olympus|2918|GR
Galdhøpiggen|2469|NO
Mount Kosciuszko|2228|AU
Ben Nevis|1345|GB
""")

#: Countries that share a land border, each pair once; only countries of the demo.
BORDERS = [
    (country, neighbour)
    for country, neighbours in records("""
FR|ES BE LU DE CH IT
DE|AT CH NL BE LU DK PL CZ
AT|CH IT SI HU SK CZ
IT|CH SI
ES|PT
BE|NL LU
GB|IE
NO|SE FI RU
FI|SE RU
LV|EE LT RU
EE|RU
LT|PL RU
PL|CZ SK UA RU
SK|CZ HU UA
HU|SI HR RS RO UA
HR|SI RS
RO|RS UA
UA|RU
GR|AL TR
TR|GE IR IQ
RU|GE KZ MN CN
CN|KZ MN VN IN NP PK
IN|NP PK BD
IR|IQ PK
SA|IQ JO QA AE
IQ|JO
MY|TH ID
US|CA MX
PA|CR CO
CO|BR PE EC
PE|EC BR CL
AR|BR CL UY
BR|UY
DZ|TN MA
CI|GH
KE|ET TZ
TZ|RW
NA|ZA
""")
    for neighbour in neighbours.split()
]
